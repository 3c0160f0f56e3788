#include "atoll/ops/attention_block/cuda.h"

#include "atoll/ops/attention/cuda_mma_serve.h"
#include "atoll/ops/attention/cuda_views.h"
#include "atoll/ops/attention/kernels.cuh"
#include "atoll/ops/attention/mma_kernels.cuh"

namespace atl::ops::cuda {

namespace {

using Setup = AttentionBlockSetup;

Setup setup_of(const AttentionBlockArgs& a) {
  const std::int64_t past = a.block.first_query - a.block.first_key;
  return {.positions = input<std::int32_t>(a.mask.positions),
          .length = static_cast<int>(a.block.num_queries),
          .keys = static_cast<int>(a.block.num_keys),
          .rows = static_cast<int>(a.qkv.dim(1)),
          .first_row = static_cast<int>(a.block.query_row),
          .past = static_cast<int>(past),
          .window = static_cast<int>(a.mask.window),
          .heads = static_cast<int>(a.heads.num_heads),
          .kv_heads = static_cast<int>(a.heads.num_kv_heads),
          .head_dim = static_cast<int>(a.heads.head_dim),
          .scale = static_cast<float>(a.scores.scale),
          .softcap = static_cast<float>(a.scores.softcap),
          .merges = !a.is_first};
}

// Heads of the block's rows, from row `row` on, and from element `offset` of a row on.
template <typename T>
HeadRows<T> block_rows(const Tensor& tensor, const HeadLayout& heads, std::int64_t row,
                       std::int64_t offset = 0) {
  return heads_of<T>(tensor, heads, row * tensor.dim(-1) + offset);
}

// What all kernels read and write, or null.
template <typename T>
struct Views {
  HeadRows<const T> queries, keys, values;

  explicit Views(const AttentionBlockArgs& a)
      : queries(block_rows<const T>(a.qkv, a.heads, a.block.query_row)),
        keys(block_rows<const T>(a.kv, a.heads, a.block.key_row)),
        values(block_rows<const T>(a.kv, a.heads, a.block.key_row, a.heads.kv_width())) {}
};
template <typename T>
struct GradientViews : Views<T> {
  HeadRows<const T> out, dout;
  HeadRows<float> dqueries, dkeys, dvalues;

  explicit GradientViews(const AttentionBlockArgs& a)
      : Views<T>(a),
        out(block_rows<const T>(a.out, a.heads, a.block.query_row)),
        dout(block_rows<const T>(a.dout, a.heads, a.block.query_row)),
        dqueries(block_rows<float>(a.dqkv, a.heads, a.block.query_row)),
        dkeys(block_rows<float>(a.dkv, a.heads, a.block.key_row)),
        dvalues(block_rows<float>(a.dkv, a.heads, a.block.key_row, a.heads.kv_width())) {}
};

std::int64_t num_queries(const AttentionBlockArgs& a) {
  return a.qkv.dim(0) * a.heads.num_heads * a.block.num_queries;
}
std::int64_t num_keys(const AttentionBlockArgs& a) {
  return a.qkv.dim(0) * a.heads.num_kv_heads * a.block.num_keys;
}

template <typename Kernel>
void launch_rows(Run& run, std::int64_t rows, const Kernel& kernel) {
  if (rows > 0) launch<AttentionKernels>(run, warp_a_row(rows, Kernel::kMaxThreads), kernel);
}

Spec delta_spec(const HeadLayout& heads, std::int64_t B, std::int64_t num_queries) {
  return {Dtype::kF32, {B, heads.num_heads, num_queries}};
}

}  // namespace

Declined attention_block_forward(Run& run, const AttentionBlockArgs& a) {
  if (a.heads.head_dim > AttentionSetup::kMaxHeadDim) return "head_dim above 256";
  return serve_gpu_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
    const Views<T> from(a);
    const auto out = block_rows<float>(a.out, a.heads, a.block.query_row);
    launch_rows(run, num_queries(a),
                AttentionForward<T, Setup>{from.queries, from.keys, from.values, out,
                                           output<float>(a.lse), setup_of(a), num_queries(a)});
  });
}

Declined attention_block_backward(Run& run, const AttentionBlockArgs& a) {
  if (a.heads.head_dim > AttentionSetup::kMaxHeadDim) return "head_dim above 256";
  return serve_gpu_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
    const GradientViews<T> v(a);
    launch_rows(run, num_queries(a),
                AttentionBackwardQuery<T, Setup>{v.queries, v.keys, v.values, v.out, v.dout,
                                                 input<float>(a.lse), v.dqueries, setup_of(a),
                                                 num_queries(a)});
    launch_rows(run, num_keys(a),
                AttentionBackwardKey<T, Setup>{v.queries, v.keys, v.values, v.out, v.dout,
                                               input<float>(a.lse), v.dkeys, v.dvalues, setup_of(a),
                                               num_keys(a)});
  });
}

Declined attention_block_mma_forward(Run& run, const AttentionBlockArgs& a) {
  return serve_mma(
      run, a.heads, a.scores, {a.qkv, a.kv}, [&]<int D>(std::integral_constant<int, D>) {
        const Views<Bf16> from(a);
        const auto out = block_rows<float>(a.out, a.heads, a.block.query_row);
        launch_tiles(run, a.qkv.dim(0) * a.heads.num_heads, a.block.num_queries,
                     AttentionMmaForward<D, Setup>{from.queries, from.keys, from.values, out,
                                                   output<float>(a.lse), setup_of(a)});
      });
}

Declined attention_block_mma_backward(Run& run, const AttentionBlockArgs& a) {
  const std::int64_t B = a.qkv.dim(0);
  if (a.block.num_queries > a.block.num_keys) return "more queries than keys";  // of the scratch
  return serve_mma(
      run, a.heads, a.scores, {a.qkv, a.kv, a.out, a.dout},
      [&]<int D>(std::integral_constant<int, D>) {
        Run inner = run;
        const Tensor delta = inner.take_scratch(delta_spec(a.heads, B, a.block.num_queries));
        const GradientViews<Bf16> v(a);
        launch_tiles(run, B * a.heads.num_heads, a.block.num_queries,
                     AttentionMmaQueries<D, Setup>{v.queries, v.keys, v.values, v.out, v.dout,
                                                   input<float>(a.lse), v.dqueries,
                                                   output<float>(delta), setup_of(a)});
        launch_tiles(
            run, B * a.heads.num_kv_heads, a.block.num_keys,
            AttentionMmaKeys<D, Setup>{v.queries, v.keys, v.values, v.dout, input<float>(a.lse),
                                       input<float>(delta), v.dkeys, v.dvalues, setup_of(a)});
      });
}

std::size_t attention_block_mma_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                              std::int64_t num_queries) {
  return align_up(delta_spec(heads, B, num_queries).bytes());
}

}  // namespace atl::ops::cuda
