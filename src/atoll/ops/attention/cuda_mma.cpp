#include "atoll/ops/attention/cuda.h"
#include "atoll/ops/attention/cuda_mma_serve.h"
#include "atoll/ops/attention/cuda_views.h"
#include "atoll/ops/attention/mma_kernels.cuh"

namespace atl::ops::cuda {

namespace {

Spec delta_spec(const HeadLayout& heads, const Spec& qkv) {
  return {Dtype::kF32, {qkv.shape.dim(0), heads.num_heads, qkv.shape.dim(1)}};
}

}  // namespace

Declined attention_mma_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                               const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  return serve_mma(run, heads, scores, {qkv, out}, [&]<int D>(std::integral_constant<int, D>) {
    const QkvViews<const Bf16> from(qkv, heads);
    launch_tiles(
        run, qkv.dim(0) * heads.num_heads, qkv.dim(1),
        AttentionMmaForward<D>{from.queries, from.keys, from.values, heads_of<Bf16>(out, heads),
                               output<float>(lse), setup_of(heads, scores, mask, qkv)});
  });
}

Declined attention_mma_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                                Tensor dout, Tensor dqkv) {
  return serve_mma(
      run, heads, scores, {qkv, out, dout, dqkv}, [&]<int D>(std::integral_constant<int, D>) {
        Run inner = run;
        const Tensor delta = inner.take_scratch(delta_spec(heads, qkv.spec()));
        const AttentionSetup setup = setup_of(heads, scores, mask, qkv);
        const QkvViews<const Bf16> from(qkv, heads);
        const QkvViews<Bf16> to(dqkv, heads);
        const auto grads = heads_of<const Bf16>(dout, heads);
        launch_tiles(run, qkv.dim(0) * heads.num_heads, qkv.dim(1),
                     AttentionMmaQueries<D>{
                         from.queries, from.keys, from.values, heads_of<const Bf16>(out, heads),
                         grads, input<float>(lse), to.queries, output<float>(delta), setup});
        launch_tiles(
            run, qkv.dim(0) * heads.num_kv_heads, qkv.dim(1),
            AttentionMmaKeys<D>{from.queries, from.keys, from.values, grads, input<float>(lse),
                                input<float>(delta), to.keys, to.values, setup});
      });
}

Declined attention_mma_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                              std::int64_t window, std::int64_t key_offset, Tensor qkv,
                              Tensor k_cache, Tensor v_cache, Tensor out) {
  constexpr std::int64_t kLeastRows = 16;  // a warp's: with fewer, most of a product is thrown away
  if (qkv.dim(1) < kLeastRows) return "fewer than 16 new rows";
  return serve_mma(
      run, heads, scores, {qkv, k_cache, v_cache, out}, [&]<int D>(std::integral_constant<int, D>) {
        launch_tiles(
            run, qkv.dim(0) * heads.num_heads, qkv.dim(1),
            AttentionMmaForward<D>{heads_of<const Bf16>(qkv, heads),
                                   heads_of<const Bf16>(k_cache, heads),
                                   heads_of<const Bf16>(v_cache, heads),
                                   heads_of<Bf16>(out, heads),
                                   {},
                                   setup_of(heads, scores, {.window = window}, qkv, key_offset)});
      });
}

std::size_t attention_mma_scratch_bytes(const HeadLayout& heads, const Spec& qkv) {
  return align_up(delta_spec(heads, qkv).bytes());
}

}  // namespace atl::ops::cuda
