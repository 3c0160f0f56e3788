#include "atoll/ops/attention_block/attention_block.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/ops/attention/checks.h"
#include "atoll/ops/attention/cpu.h"
#include "atoll/ops/attention_block/cpu.h"
#include "atoll/ops/attention_block/cuda.h"
#include "atoll/ops/attention_block/ref.h"
#include "atoll/ops/positions.h"

namespace atl::ops {

namespace {

using BlockArgs = cuda::AttentionBlockArgs;
using BlockImplementation = Implementation<BlockArgs>;

template <typename Fn>
Declined serve_tiled(const Run& run, const BlockArgs& a, Fn&& fn) {
  if (a.heads.head_dim > cpu::kMaxHeadDim) return "head_dim above 256";
  return serve_f32_or_bf16(run, a.qkv.dtype(), fn);
}

constexpr BlockImplementation kForward[] = {
    {"cpu",
     [](Run& run, const BlockArgs& a) {
       return serve_tiled(run, a, [&] {
         cpu::attention_block_forward(run, a.heads, a.scores, a.mask, a.block, a.is_first, a.qkv,
                                      a.kv, a.out, a.lse);
       });
     }},
    {"cuda_mma", cuda::attention_block_mma_forward},
    {"cuda", cuda::attention_block_forward},
    {"ref",
     [](Run& run, const BlockArgs& a) {
       return serve_any_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
         ref::attention_block_forward<T>(run, a.heads, a.scores, a.mask, a.block, a.is_first, a.qkv,
                                         a.kv, a.out, a.lse);
       });
     }},
};

constexpr BlockImplementation kBackward[] = {
    {"cpu",
     [](Run& run, const BlockArgs& a) {
       return serve_tiled(run, a, [&] {
         cpu::attention_block_backward(run, a.heads, a.scores, a.mask, a.block, a.qkv, a.kv, a.out,
                                       a.lse, a.dout, a.dqkv, a.dkv);
       });
     }},
    {"cuda_mma", cuda::attention_block_mma_backward},
    {"cuda", cuda::attention_block_backward},
    {"ref",
     [](Run& run, const BlockArgs& a) {
       return serve_any_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
         ref::attention_block_backward<T>(run, a.heads, a.scores, a.mask, a.block, a.qkv, a.kv,
                                          a.out, a.lse, a.dout, a.dqkv, a.dkv);
       });
     }},
};

void check_block(const char* op, const HeadLayout& heads, const AttentionBlock& block,
                 const Tensor& qkv, const Tensor& kv) {
  check_heads(op, heads, qkv);
  check_spec(op, {qkv.dtype(), {qkv.dim(0), kv.dim(1), 2 * heads.kv_width()}}, {kv});
  ATOLL_CHECK(block.num_queries > 0 && block.num_keys > 0 && block.query_row >= 0 &&
                  block.key_row >= 0 && block.query_row + block.num_queries <= qkv.dim(1) &&
                  block.key_row + block.num_keys <= kv.dim(1),
              "{}: queries [{}, +{}) of {} rows and keys [{}, +{}) of {}", op, block.query_row,
              block.num_queries, qkv.dim(1), block.key_row, block.num_keys, kv.dim(1));
  ATOLL_CHECK(block.first_key >= 0 && block.first_key <= block.first_query,
              "{}: keys from {} and queries from {} on", op, block.first_key, block.first_query);
}

// No query's document begins before its sequence, nor after a query that it has already.
void check_mask(const char* op, const AttentionMask& mask, const AttentionBlock& block,
                const Tensor& qkv) {
  check_window(op, mask);
  if (!mask.positions.defined()) return;
  check_spec(op, {Dtype::kI32, {qkv.dim(0), qkv.dim(1)}}, {mask.positions});
  if (!is_readable(mask.positions)) return;
  for (std::int64_t b = 0; b < qkv.dim(0); ++b) {
    const std::int32_t* positions =
        mask.positions.data<std::int32_t>() + b * qkv.dim(1) + block.query_row;
    std::int64_t most = block.first_query;
    for (std::int64_t i = 0; i < block.num_queries; most = positions[i++] + 1) {
      if (positions[i] >= 0 && positions[i] <= most) continue;
      throw damaged_error(
          "the position at row {}, place {} of the sequence is {}; documents follow one another, "
          "so it must be from 0 to {}",
          b, block.first_query + i, positions[i], most);
    }
  }
}

double block_flops(const HeadLayout& heads, const AttentionMask& mask, const AttentionBlock& block,
                   const Tensor& qkv, int products) {
  return products * 2.0 * static_cast<double>(qkv.dim(0)) *
         static_cast<double>(visible_pairs(block, mask.window)) *
         static_cast<double>(heads.query_width());
}

}  // namespace

std::int64_t visible_pairs(const AttentionBlock& block, std::int64_t window) {
  const std::int64_t offset = block.first_query - block.first_key;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < block.num_queries; ++i) {
    const std::int64_t end = std::min(block.num_keys, offset + i + 1);
    const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, offset + i + 1 - window);
    pairs += std::max<std::int64_t>(0, end - first);
  }
  return pairs;
}

void attention_block_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                             const AttentionMask& mask, const AttentionBlock& block, bool is_first,
                             Tensor qkv, Tensor kv, Tensor out, Tensor lse) {
  constexpr const char* kOp = "attention_block_forward";
  check_block(kOp, heads, block, qkv, kv);
  check_spec(kOp, {compute_dtype(qkv.dtype()), attended_spec(heads, qkv).shape}, {out});
  check_spec(kOp, lse_spec(heads, qkv), {lse});
  check_scores(kOp, scores);
  check_mask(kOp, mask, block, qkv);
  dispatch<BlockArgs>(kOp, kForward, run,
                      {heads, scores, mask, block, is_first, qkv, kv, out, lse, {}, {}, {}},
                      cost_of({qkv, kv, out, lse}, block_flops(heads, mask, block, qkv, 2)));
}

void attention_block_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                              const AttentionMask& mask, const AttentionBlock& block, Tensor qkv,
                              Tensor kv, Tensor out, Tensor lse, Tensor dout, Tensor dqkv,
                              Tensor dkv) {
  constexpr const char* kOp = "attention_block_backward";
  check_block(kOp, heads, block, qkv, kv);
  check_spec(kOp, attended_spec(heads, qkv), {out, dout});
  check_spec(kOp, lse_spec(heads, qkv), {lse});
  check_spec(kOp, {compute_dtype(qkv.dtype()), qkv.shape()}, {dqkv});
  check_spec(kOp, {compute_dtype(qkv.dtype()), kv.shape()}, {dkv});
  check_scores(kOp, scores);
  check_mask(kOp, mask, block, qkv);
  dispatch<BlockArgs>(
      kOp, kBackward, run, {heads, scores, mask, block, false, qkv, kv, out, lse, dout, dqkv, dkv},
      cost_of({qkv, kv, out, lse, dout, dqkv, dkv}, block_flops(heads, mask, block, qkv, 5)));
}

std::size_t attention_block_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                          std::int64_t num_keys) {
  return std::max(cpu::attention_block_scratch_bytes(heads, B, num_keys),
                  cuda::attention_block_mma_scratch_bytes(heads, B, num_keys));
}

}  // namespace atl::ops
