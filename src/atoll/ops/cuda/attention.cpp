#include "atoll/ops/cuda/attention.h"

#include "atoll/ops/cuda/attention.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

AttentionSetup setup_of(const HeadLayout& heads, double scale, const AttentionMask& mask,
                        const Tensor& qkv) {
  return {input<std::int32_t>(mask.positions),
          qkv.dim(1),
          mask.window,
          static_cast<int>(heads.num_heads),
          static_cast<int>(heads.num_kv_heads),
          static_cast<int>(heads.head_dim),
          static_cast<float>(scale)};
}

template <typename Kernel>
void launch_rows(Run& run, std::int64_t rows, const Kernel& kernel) {
  if (rows > 0) launch<AttentionKernels>(run, warp_a_row(rows, Kernel::kMaxThreads), kernel);
}

}  // namespace

Declined attention_forward(Run& run, const HeadLayout& heads, double scale,
                           const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  if (heads.head_dim > AttentionSetup::kMaxHeadDim) return "head_dim above 256";
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    launch_rows(run, lse.num_elements(),
                AttentionForward<T>{input<T>(qkv), output<T>(out), output<float>(lse),
                                    setup_of(heads, scale, mask, qkv)});
  });
}

Declined attention_backward(Run& run, const HeadLayout& heads, double scale,
                            const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                            Tensor dout, Tensor dqkv) {
  if (heads.head_dim > AttentionSetup::kMaxHeadDim) return "head_dim above 256";
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    const AttentionSetup setup = setup_of(heads, scale, mask, qkv);
    launch_rows(run, lse.num_elements(),
                AttentionBackwardQuery<T>{input<T>(qkv), input<T>(out), input<float>(lse),
                                          input<T>(dout), output<T>(dqkv), setup});
    const std::int64_t keys = qkv.dim(0) * heads.num_kv_heads * qkv.dim(1);
    launch_rows(run, keys,
                AttentionBackwardKey<T>{input<T>(qkv), input<T>(out), input<float>(lse),
                                        input<T>(dout), output<T>(dqkv), setup, keys});
  });
}

}  // namespace atl::ops::cuda
