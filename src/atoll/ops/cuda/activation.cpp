#include "atoll/ops/cuda/activation.h"

#include "atoll/ops/cuda/activation.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

template <typename Kernel>
void launch_packs(Run& run, std::int64_t elements, int pack, const Kernel& kernel) {
  if (elements == 0) return;
  launch<ActivationKernels>(run, thread_a_pack(elements, pack, Kernel::kMaxThreads), kernel);
}

}  // namespace

Declined swiglu_forward(Run& run, Tensor gate_up, Tensor h) {
  return serve_gpu_storage(run, h.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(h.dim(-1), {gate_up, h}, [&]<int V>(std::integral_constant<int, V>) {
      launch_packs(run, h.num_elements(), V,
                   SwigluForward<T, V>{input<T>(gate_up), output<T>(h), h.dim(-1)});
    });
  });
}

Declined swiglu_backward(Run& run, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h) {
  return serve_gpu_storage(run, h.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(
        h.dim(-1), {gate_up, dh, dgate_up, h}, [&]<int V>(std::integral_constant<int, V>) {
          launch_packs(run, h.num_elements(), V,
                       SwigluBackward<T, V>{input<T>(gate_up), input<T>(dh), output<T>(dgate_up),
                                            output<T>(h), h.dim(-1)});
        });
  });
}

Declined gelu_forward(Run& run, Gelu kind, Tensor x, Tensor y) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(x.num_elements(), {x, y}, [&]<int V>(std::integral_constant<int, V>) {
      launch_packs(run, x.num_elements(), V,
                   GeluForward<T, V>{input<T>(x), output<T>(y), kind == Gelu::kTanh});
    });
  });
}

Declined gelu_backward(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(x.num_elements(), {x, dy, dx, y.defined() ? y : x},
                        [&]<int V>(std::integral_constant<int, V>) {
                          launch_packs(run, x.num_elements(), V,
                                       GeluBackward<T, V>{input<T>(x), input<T>(dy), output<T>(dx),
                                                          output<T>(y), kind == Gelu::kTanh});
                        });
  });
}

}  // namespace atl::ops::cuda
