#pragma once

// What implementations on a GPU share: whether they can serve, views of operands, and the launch.

#include <initializer_list>

#include "atoll/device/cuda/launch.h"
#include "atoll/device/fake_cuda/shim.h"
#include "atoll/ops/cuda/gpu_kernels.h"
#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/launch_shapes.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/serve.h"

namespace atl::ops::cuda {

/// Calls fn() when the run's stream is a GPU's, real or fake; otherwise says why not.
template <typename Fn>
Declined serve_gpu(const Run& run, Fn&& fn) {
  if (run.stream->device().kind() != DeviceKind::kCuda) return "not in a GPU's memory";
  fn();
  return kServed;
}

/// serve_gpu for f32 and bf16: calls fn(T{}) with T = float or Bf16.
template <typename Fn>
Declined serve_gpu_storage(const Run& run, Dtype dtype, Fn&& fn) {
  if (dtype == Dtype::kF32) return serve_gpu(run, [&] { fn(float{}); });
  if (dtype == Dtype::kBf16) return serve_gpu(run, [&] { fn(Bf16{}); });
  return "neither f32 nor bf16";
}

/// An operand that is read, or no elements for an undefined one.
template <typename T>
Global<const T> input(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data<T>(), tensor.num_elements()};
}
/// An operand that is written.
template <typename T>
Global<T> output(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data<T>(), tensor.num_elements()};
}

/// Calls fn(std::integral_constant<int, V>) with V = N where rows of `width` elements and all
/// operands allow N at once, else with 1.
template <int N, typename Fn>
void with_pack(std::int64_t width, std::initializer_list<Tensor> operands, Fn&& fn) {
  bool fits = width % N == 0;
  for (const Tensor& operand : operands) {
    const std::size_t bytes = N * dtype_size(operand.dtype());
    fits = fits && reinterpret_cast<std::uintptr_t>(operand.raw()) % bytes == 0;
  }
  fits ? fn(std::integral_constant<int, N>{}) : fn(std::integral_constant<int, 1>{});
}

/// Queues a kernel of `List`, which is what nvcc compiles.
template <typename List, typename Kernel>
void launch(Run& run, LaunchShape shape, const Kernel& kernel) {
  static_assert(List::template kHas<Kernel>, "nvcc does not compile this kernel");
  static_assert(alignof(Kernel) <= alignof(std::max_align_t), "streams copy it to such places");
  static const atl::cuda::KernelCode code = {.name = Kernel::kName,
                                             .gpu = gpu_kernel(typeid(Kernel)),
                                             .shim = fake_cuda::shim_of<Kernel>()};
  dynamic_cast<atl::cuda::KernelStream&>(*run.stream).launch(code, shape, &kernel, sizeof kernel);
}

}  // namespace atl::ops::cuda
