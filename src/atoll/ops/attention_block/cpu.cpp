#include "atoll/ops/attention_block/cpu.h"

#include "atoll/ops/attention/cpu_tiles.h"
#include "atoll/ops/positions.h"
#include "atoll/ops/storage.h"

namespace atl::ops::cpu {

namespace {

// The positions of the block's queries, or null.
const std::int32_t* positions_of(const AttentionMask& mask, const AttentionBlock& block) {
  const std::int32_t* positions = position_data(mask.positions);
  return positions == nullptr ? nullptr : positions + block.query_row;
}

template <typename T>
void forward(Run& run, const HeadLayout& heads, AttentionScores scores, const AttentionMask& mask,
             const AttentionBlock& block, bool is_first, const Tensor& qkv, const Tensor& kv,
             const Tensor& out, const Tensor& lse) {
  ForwardOperands<T, float> operands;
  operands.qkv = qkv.data<T>() + block.query_row * heads.qkv_width();
  operands.kv_stride = 2 * heads.kv_width();
  operands.kv_batch_stride = kv.dim(1) * operands.kv_stride;
  operands.k = kv.data<T>() + block.key_row * operands.kv_stride;
  operands.v = operands.k + heads.kv_width();
  operands.out = out.data<float>() + block.query_row * heads.query_width();
  operands.lse = lse.data<float>() + block.query_row;
  operands.batch_rows = qkv.dim(1);
  operands.key_offset = block.first_query - block.first_key;
  operands.num_keys = block.num_keys;
  operands.window = mask.window;
  operands.positions = positions_of(mask, block);
  operands.scores = scores;
  operands.merges = !is_first;
  forward_tiles(run, qkv.dim(0), block.num_queries, heads, operands);
}

template <typename T>
void backward(Run& run, const HeadLayout& heads, AttentionScores scores, const AttentionMask& mask,
              const AttentionBlock& block, const Tensor& qkv, const Tensor& kv, const Tensor& out,
              const Tensor& lse, const Tensor& dout, const Tensor& dqkv, const Tensor& dkv) {
  Run inner = run;
  const std::size_t bytes = backward_tiles_scratch_bytes(heads, qkv.dim(0), block.num_keys);
  BackwardOperands<T, float> operands;
  operands.heads = heads;
  operands.scores = scores;
  operands.window = mask.window;
  operands.positions = positions_of(mask, block);
  const std::int64_t q = block.query_row * heads.qkv_width();
  const std::int64_t attended = block.query_row * heads.query_width();
  operands.kv_stride = 2 * heads.kv_width();
  operands.kv_batch_stride = kv.dim(1) * operands.kv_stride;
  const std::int64_t k = block.key_row * operands.kv_stride;
  operands.q = qkv.data<T>() + q;
  operands.k = kv.data<T>() + k;
  operands.v = operands.k + heads.kv_width();
  operands.out = out.data<T>() + attended;
  operands.dout = dout.data<T>() + attended;
  operands.lse = lse.data<float>() + block.query_row;
  operands.dq = dqkv.data<float>() + q;
  operands.dk = dkv.data<float>() + k;
  operands.dv = operands.dk + heads.kv_width();
  operands.scratch = static_cast<float*>(
      inner.take_scratch({Dtype::kU8, {static_cast<std::int64_t>(bytes)}}).raw());
  operands.batch_rows = qkv.dim(1);
  operands.B = qkv.dim(0);
  operands.num_queries = block.num_queries;
  operands.num_keys = block.num_keys;
  operands.key_offset = block.first_query - block.first_key;
  operands.adds = true;
  backward_tiles(run, operands);
}

}  // namespace

void attention_block_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                             const AttentionMask& mask, const AttentionBlock& block, bool is_first,
                             Tensor qkv, Tensor kv, Tensor out, Tensor lse) {
  if (qkv.dtype() == Dtype::kBf16) {
    return forward<Bf16>(run, heads, scores, mask, block, is_first, qkv, kv, out, lse);
  }
  forward<float>(run, heads, scores, mask, block, is_first, qkv, kv, out, lse);
}

void attention_block_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                              const AttentionMask& mask, const AttentionBlock& block, Tensor qkv,
                              Tensor kv, Tensor out, Tensor lse, Tensor dout, Tensor dqkv,
                              Tensor dkv) {
  if (qkv.dtype() == Dtype::kBf16) {
    return backward<Bf16>(run, heads, scores, mask, block, qkv, kv, out, lse, dout, dqkv, dkv);
  }
  backward<float>(run, heads, scores, mask, block, qkv, kv, out, lse, dout, dqkv, dkv);
}

std::size_t attention_block_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                          std::int64_t num_keys) {
  return backward_tiles_scratch_bytes(heads, B, num_keys);
}

}  // namespace atl::ops::cpu
