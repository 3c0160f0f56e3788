#include "atoll/ops/cuda/attention_mma.cuh"
#include "atoll/ops/cuda/attention.h"
#include "atoll/ops/cuda/attention_views.h"

namespace atl::ops::cuda {

namespace {

// Calls fn(std::integral_constant<int, kDim>) with what heads are padded to.
template <typename Fn>
Declined serve_mma(const Run& run, const HeadLayout& heads, double scale,
                   std::initializer_list<Tensor> operands, Fn&& fn) {
  if (heads.head_dim > 128 || heads.head_dim % kChunk != 0) {
    return "head_dim is not a multiple of 8 up to 128";
  }
  if (!(scale > 0)) return "a scale that is not above 0";
  for (const Tensor& operand : operands) {
    if (operand.dtype() != Dtype::kBf16) return "not bf16";
    if (reinterpret_cast<std::uintptr_t>(operand.raw()) % 16 != 0) return "not aligned to 16 bytes";
  }
  return serve_gpu(run, [&] {
    heads.head_dim <= 64 ? fn(std::integral_constant<int, 64>{})
                         : fn(std::integral_constant<int, 128>{});
  });
}

// A block for each tile of rows of each head.
template <typename Kernel>
void launch_tiles(Run& run, const Tensor& qkv, std::int64_t num_heads, const Kernel& kernel) {
  const std::int64_t blocks = qkv.dim(0) * num_heads * num_blocks(qkv.dim(1), kTileRows);
  if (blocks == 0) return;
  launch<AttentionMmaKernels>(run,
                              {.blocks_x = static_cast<std::uint32_t>(blocks),
                               .threads = Kernel::kMaxThreads,
                               .shared_bytes = Kernel::shared_bytes()},
                              kernel);
}

Spec delta_spec(const HeadLayout& heads, const Spec& qkv) {
  return {Dtype::kF32, {qkv.shape.dim(0), heads.num_heads, qkv.shape.dim(1)}};
}

}  // namespace

Declined attention_mma_forward(Run& run, const HeadLayout& heads, double scale,
                               const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  return serve_mma(run, heads, scale, {qkv, out}, [&]<int D>(std::integral_constant<int, D>) {
    const QkvViews<const Bf16> from(qkv, heads);
    launch_tiles(
        run, qkv, heads.num_heads,
        AttentionMmaForward<D>{from.queries, from.keys, from.values, heads_of<Bf16>(out, heads),
                               output<float>(lse), setup_of(heads, scale, mask, qkv)});
  });
}

Declined attention_mma_backward(Run& run, const HeadLayout& heads, double scale,
                                const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                                Tensor dout, Tensor dqkv) {
  return serve_mma(
      run, heads, scale, {qkv, out, dout, dqkv}, [&]<int D>(std::integral_constant<int, D>) {
        Run inner = run;
        const Tensor delta = inner.take_scratch(delta_spec(heads, qkv.spec()));
        const AttentionSetup setup = setup_of(heads, scale, mask, qkv);
        const QkvViews<const Bf16> from(qkv, heads);
        const QkvViews<Bf16> to(dqkv, heads);
        const auto grads = heads_of<const Bf16>(dout, heads);
        launch_tiles(run, qkv, heads.num_heads,
                     AttentionMmaQueries<D>{
                         from.queries, from.keys, from.values, heads_of<const Bf16>(out, heads),
                         grads, input<float>(lse), to.queries, output<float>(delta), setup});
        launch_tiles(
            run, qkv, heads.num_kv_heads,
            AttentionMmaKeys<D>{from.queries, from.keys, from.values, grads, input<float>(lse),
                                input<float>(delta), to.keys, to.values, setup});
      });
}

Declined attention_mma_cached(Run& run, const HeadLayout& heads, double scale, std::int64_t window,
                              std::int64_t key_offset, Tensor qkv, Tensor k_cache, Tensor v_cache,
                              Tensor out) {
  constexpr std::int64_t kLeastRows = 16;  // a warp's: with fewer, most of a product is thrown away
  if (qkv.dim(1) < kLeastRows) return "fewer than 16 new rows";
  return serve_mma(
      run, heads, scale, {qkv, k_cache, v_cache, out}, [&]<int D>(std::integral_constant<int, D>) {
        launch_tiles(
            run, qkv, heads.num_heads,
            AttentionMmaForward<D>{heads_of<const Bf16>(qkv, heads),
                                   heads_of<const Bf16>(k_cache, heads),
                                   heads_of<const Bf16>(v_cache, heads),
                                   heads_of<Bf16>(out, heads),
                                   {},
                                   setup_of(heads, scale, {.window = window}, qkv, key_offset)});
      });
}

std::size_t attention_mma_scratch_bytes(const HeadLayout& heads, const Spec& qkv) {
  return align_up(delta_spec(heads, qkv).bytes());
}

}  // namespace atl::ops::cuda
