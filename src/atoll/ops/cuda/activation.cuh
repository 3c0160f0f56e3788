#pragma once

// Activations, element by element, V at a time.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/row_team.cuh"

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

/// dgate_up = gradient for dh, and h again unless it is empty. dgate_up may be gate_up.
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
    if (i >= dh.size) return;
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
    if (h.size > 0) h.template store<V>(i, out);
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

/// GeluBackward of rows, with sums[block] = the sums over the block's rows of dx as it is stored. A
/// block of threads takes 32 V columns; its warps take its rows in turn.
template <typename T, int V>
struct GeluBackwardColumns {
  static constexpr const char* kName = "gelu_backward";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;  // (rows, width)
  Global<const T> dy;
  Global<T> dx;
  Global<T> y;
  Global<float> sums;  // (row blocks, width)
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rows_per_block;
  bool by_tanh;

  static constexpr int shared_bytes() {
    return column_box_size<V>(kMaxThreads) * static_cast<int>(sizeof(float));
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t left = std::int64_t{block_x()} * kWarp * V;
    const std::int64_t column = left + lane() * V;
    const std::int64_t first = block_y() * rows_per_block;
    const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    float of_columns[V] = {};
    if (column < width) {
      for (std::int64_t row = first + warp(); row < last; row += num_threads() / kWarp) {
        run_pack(row * width + column, of_columns);
      }
    }
    const Shared<float> box = shared_memory<float>(0, column_box_size<V>(num_threads()));
    store_columns<V>(of_columns, width - left < kWarp * V ? width - left : kWarp * V, kWarp, box,
                     sums, block_y() * width + left);
  }

  ATOLL_DEVICE void run_pack(std::int64_t at, float (&of_columns)[V]) const {
    const auto xs = x.template load<V>(at);
    const auto dys = dy.template load<V>(at);
    Pack<T, V> grad, value;
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) {
      const GeluValues gelu = gelu_values(by_tanh, widened(xs[k]));
      grad[k] = narrowed<T>(widened(dys[k]) * gelu.slope);
      value[k] = narrowed<T>(gelu.y);
      of_columns[k] += widened(grad[k]);
    }
    dx.template store<V>(at, grad);
    if (y.size > 0) y.template store<V>(at, value);
  }
};

template <typename T, int V>
using ActivationKernelsOf = KernelList<SwigluForward<T, V>, SwigluBackward<T, V>, GeluForward<T, V>,
                                       GeluBackward<T, V>, GeluBackwardColumns<T, V>>;
using ActivationKernels = Joined<ActivationKernelsOf<float, 1>, ActivationKernelsOf<float, 4>,
                                 ActivationKernelsOf<Bf16, 1>, ActivationKernelsOf<Bf16, 8>>;

}  // namespace atl::ops::cuda
