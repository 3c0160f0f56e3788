#include "atoll/ops/softcap/cuda.h"

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/softcap/kernels.cuh"

namespace atl::ops::cuda {

Declined softcap_forward(Run& run, double cap, Tensor x, Tensor y) {
  if (y.dtype() != Dtype::kF32) return "f32 alone";
  return serve_gpu(run, [&] {
    if (y.num_elements() == 0) return;
    with_pack<kPack<float>>(y.num_elements(), {x, y}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = SoftcapForward<V>;
      launch<SoftcapKernels>(run, thread_a_pack(y.num_elements(), V, Kernel::kMaxThreads),
                             Kernel{input<float>(x), output<float>(y), static_cast<float>(cap),
                                    static_cast<float>(1 / cap)});
    });
  });
}

Declined softcap_backward(Run& run, double cap, Tensor y, Tensor dy, Tensor dx) {
  if (y.dtype() != Dtype::kF32) return "f32 alone";
  return serve_gpu(run, [&] {
    if (y.num_elements() == 0) return;
    with_pack<kPack<float>>(
        y.num_elements(), {y, dy, dx}, [&]<int V>(std::integral_constant<int, V>) {
          using Kernel = SoftcapBackward<V>;
          launch<SoftcapKernels>(run, thread_a_pack(y.num_elements(), V, Kernel::kMaxThreads),
                                 Kernel{input<float>(y), input<float>(dy), output<float>(dx),
                                        static_cast<float>(1 / cap)});
        });
  });
}

}  // namespace atl::ops::cuda
