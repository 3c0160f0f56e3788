#pragma once

// Activations, element by element, V at a time.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// h = silu(gate) up.
template <typename T, int V>
struct SwigluForward {
  static constexpr const char* kName = "swiglu_forward";
  static constexpr int kMaxThreads = 256;
  Global<const T> gate_up;  // (rows, 2 width), each row gate, then up
  Global<T> h;              // (rows, width)
  std::int64_t width;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= h.size) return;
    const std::int64_t at = i + i / width * width;
    const auto gate = gate_up.template load<V>(at);
    const auto up = gate_up.template load<V>(at + width);
    Pack<T, V> out;
    for (int k = 0; k < V; ++k) {
      const float g = widened(gate[k]);
      out[k] = narrowed<T>(g * sigmoid_f32(g) * widened(up[k]));
    }
    h.template store<V>(i, out);
  }
};

/// dgate_up = gradient for dh, and h again. dgate_up may be gate_up.
template <typename T, int V>
struct SwigluBackward {
  static constexpr const char* kName = "swiglu_backward";
  static constexpr int kMaxThreads = 256;
  Global<const T> gate_up;
  Global<const T> dh;
  Global<T> dgate_up;
  Global<T> h;
  std::int64_t width;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= h.size) return;
    const std::int64_t at = i + i / width * width;
    const auto gates = gate_up.template load<V>(at);
    const auto ups = gate_up.template load<V>(at + width);
    const auto dhs = dh.template load<V>(i);
    Pack<T, V> out, dgate, dup;
    for (int k = 0; k < V; ++k) {
      const float gate = widened(gates[k]), up = widened(ups[k]), d = widened(dhs[k]);
      const float s = sigmoid_f32(gate);
      out[k] = narrowed<T>(gate * s * up);
      dgate[k] = narrowed<T>(d * up * s * (1.0F + gate * (1.0F - s)));
      dup[k] = narrowed<T>(d * gate * s);
    }
    h.template store<V>(i, out);
    dgate_up.template store<V>(at, dgate);
    dgate_up.template store<V>(at + width, dup);
  }
};

/// gelu(x) and its slope.
struct GeluValues {
  float y;
  float slope;
};

ATOLL_DEVICE GeluValues gelu_values(bool by_tanh, float x) {
  if (!by_tanh) {
    const float cdf = 0.5F * erfc_f32(-x * 0.70710678F);
    const float density = 0.39894228F * exp_f32(-0.5F * x * x);
    return {x * cdf, cdf + x * density};
  }
  const float k = 0.79788456F;  // sqrt(2 / pi)
  const float u = k * (x + 0.044715F * x * x * x);
  const float du = k * (1.0F + 3.0F * 0.044715F * x * x);
  const float t = tanh_f32(u);
  return {0.5F * x * (1.0F + t), 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * du};
}

/// y = gelu(x).
template <typename T, int V>
struct GeluForward {
  static constexpr const char* kName = "gelu_forward";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;
  Global<T> y;
  bool by_tanh;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= y.size) return;
    const auto xs = x.template load<V>(i);
    Pack<T, V> out;
    for (int k = 0; k < V; ++k) out[k] = narrowed<T>(gelu_values(by_tanh, widened(xs[k])).y);
    y.template store<V>(i, out);
  }
};

/// dx = dy gelu'(x), and y again unless it is empty. dx may be dy.
template <typename T, int V>
struct GeluBackward {
  static constexpr const char* kName = "gelu_backward";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;
  Global<const T> dy;
  Global<T> dx;
  Global<T> y;
  bool by_tanh;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= dx.size) return;
    const auto xs = x.template load<V>(i);
    const auto dys = dy.template load<V>(i);
    Pack<T, V> grad, value;
    for (int k = 0; k < V; ++k) {
      const GeluValues gelu = gelu_values(by_tanh, widened(xs[k]));
      grad[k] = narrowed<T>(widened(dys[k]) * gelu.slope);
      value[k] = narrowed<T>(gelu.y);
    }
    dx.template store<V>(i, grad);
    if (y.size > 0) y.template store<V>(i, value);
  }
};

template <typename T, int V>
using ActivationKernelsOf =
    KernelList<SwigluForward<T, V>, SwigluBackward<T, V>, GeluForward<T, V>, GeluBackward<T, V>>;
using ActivationKernels = Joined<ActivationKernelsOf<float, 1>, ActivationKernelsOf<float, 4>,
                                 ActivationKernelsOf<Bf16, 1>, ActivationKernelsOf<Bf16, 8>>;

}  // namespace atl::ops::cuda
