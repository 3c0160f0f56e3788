#include "atoll/ops/rope/cuda.h"

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/rope/kernels.cuh"

namespace atl::ops::cuda {

Declined rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
              Tensor qkv) {
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    const std::int64_t rows = qkv.shape().num_rows();
    if (rows == 0) return;
    const std::int64_t rotated = heads.num_heads + heads.num_kv_heads;
    // Neighbours then load neighbouring parts of the table, too.
    with_pack<4>(heads.head_dim / 2, {qkv, table}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = Rope<T, V>;
      launch<RopeKernels>(
          run, thread_a_pack(rows * rotated * heads.head_dim / 2, V, Kernel::kMaxThreads),
          Kernel{output<T>(qkv), input<float>(table), input<std::int32_t>(positions), rows,
                 qkv.dim(-2), static_cast<int>(rotated), static_cast<int>(heads.head_dim),
                 static_cast<int>(heads.qkv_width()), inverse});
    });
  });
}

}  // namespace atl::ops::cuda
