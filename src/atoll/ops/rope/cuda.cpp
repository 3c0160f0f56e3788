#include "atoll/ops/rope/cuda.h"

#include <numeric>

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/rope/kernels.cuh"

namespace atl::ops::cuda {

Declined rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
              Tensor qkv, RotaryPairs pairs) {
  const std::int64_t rows = qkv.shape().num_rows();
  const std::int64_t num_heads = heads.num_heads + heads.num_kv_heads;
  const std::int64_t half = table.dim(1) / 2;
  const auto queue = [&]<typename Kernel>(std::type_identity<Kernel>, auto from, int pack) {
    launch<RopeKernels>(
        run, thread_a_pack(rows * num_heads * half, pack, Kernel::kMaxThreads),
        Kernel{from, input<float>(table), input<std::int32_t>(positions), rows, qkv.dim(-2),
               static_cast<int>(num_heads), static_cast<int>(heads.head_dim),
               static_cast<int>(half), static_cast<int>(heads.qkv_width()), inverse});
  };
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    if (rows == 0) return;
    // Neighbouring threads then load neighbouring parts of the table, too.
    with_pack<4>(std::gcd(half, heads.head_dim), {qkv, table},
                 [&]<int V>(std::integral_constant<int, V>) {
                   pairs == RotaryPairs::kHalves
                       ? queue(std::type_identity<Rope<T, V, false>>{}, output<T>(qkv), V)
                       : queue(std::type_identity<Rope<T, V, true>>{}, output<T>(qkv), V);
                 });
  });
}

}  // namespace atl::ops::cuda
