#pragma once

// What the implementation lists of most ops share: the check of dtype and device that decides
// whether an implementation can serve, and checks of the operands' shapes.

#include <initializer_list>

#include "atoll/ops/implementations.h"

namespace atl::ops {

/// Calls fn() when the run's memory is the host's; otherwise says why not.
template <typename Fn>
Declined serve_host(const Run& run, Fn&& fn) {
  if (run.stream->device().kind() != DeviceKind::kCpu) return "not in host memory";
  fn();
  return kServed;
}

/// serve_host for f32 alone.
template <typename Fn>
Declined serve_f32(const Run& run, Dtype dtype, Fn&& fn) {
  if (dtype != Dtype::kF32) return "not f32";
  return serve_host(run, fn);
}

/// serve_host for f32 and f64: calls fn(T{}) with T = float or double.
template <typename Fn>
Declined serve_any_float(const Run& run, Dtype dtype, Fn&& fn) {
  if (dtype == Dtype::kF32) return serve_host(run, [&] { fn(float{}); });
  if (dtype == Dtype::kF64) return serve_host(run, [&] { fn(double{}); });
  return "neither f32 nor f64";
}

/// serve_host for f32 and bf16: kernels that look at the dtype themselves.
template <typename Fn>
Declined serve_f32_or_bf16(const Run& run, Dtype dtype, Fn&& fn) {
  if (dtype != Dtype::kF32 && dtype != Dtype::kBf16) return "neither f32 nor bf16";
  return serve_host(run, fn);
}

/// serve_host for whatever activations and weights are stored in: calls fn(T{}) with T = float,
/// double or Bf16.
template <typename Fn>
Declined serve_any_storage(const Run& run, Dtype dtype, Fn&& fn) {
  if (dtype == Dtype::kBf16) return serve_host(run, [&] { fn(Bf16{}); });
  if (dtype == Dtype::kF32 || dtype == Dtype::kF64) return serve_any_float(run, dtype, fn);
  return "neither f32, f64 nor bf16";
}

/// Throws Error(kInternal) unless every tensor is defined and has `spec`.
inline void check_spec(const char* op, const Spec& spec, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    ATOLL_CHECK(tensor.defined() || spec.shape.num_elements() == 0, "{}: an operand is undefined",
                op);
    ATOLL_CHECK(tensor.spec() == spec, "{}: {} where {} is needed", op, tensor.spec().to_string(),
                spec.to_string());
  }
}

/// check_spec for the dtype and the number of elements alone, whatever the shape.
inline void check_size(const char* op, Dtype dtype, std::int64_t num_elements,
                       std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    ATOLL_CHECK(tensor.defined() || num_elements == 0, "{}: an operand is undefined", op);
    ATOLL_CHECK(tensor.dtype() == dtype && tensor.num_elements() == num_elements,
                "{}: {} where {} elements of {} are needed", op, tensor.spec().to_string(),
                num_elements, dtype_name(dtype));
  }
}

}  // namespace atl::ops
