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
    const auto gate = Held<T, V>::of(gate_up.template load<V>(at));
    const auto up = Held<T, V>::of(gate_up.template load<V>(at + width));
    float out[V];
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) out[k] = gate[k] * sigmoid_f32(gate[k]) * up[k];
    h.template store<V>(i, packed<T>(out));
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
    const auto gates = Held<T, V>::of(gate_up.template load<V>(at));
    const auto ups = Held<T, V>::of(gate_up.template load<V>(at + width));
    const auto dhs = Held<T, V>::of(dh.template load<V>(i));
    float out[V], dgate[V], dup[V];
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) {
      const float gate = gates[k], up = ups[k], d = dhs[k];
      const float s = sigmoid_f32(gate);
      out[k] = gate * s * up;
      dgate[k] = d * up * s * (1.0F + gate * (1.0F - s));
      dup[k] = d * gate * s;
    }
    if (h.size > 0) h.template store<V>(i, packed<T>(out));
    dgate_up.template store<V>(at, packed<T>(dgate));
    dgate_up.template store<V>(at + width, packed<T>(dup));
  }
};

/// gelu(x) and its slope.
struct GeluValues {
  float y;
  float slope;
};

template <bool kTanh>
ATOLL_DEVICE GeluValues gelu_values(float x) {
  if constexpr (!kTanh) {
    const float cdf = 0.5F * erfc_f32(-x * 0.70710678F);
    const float density = 0.39894228F * exp_falling(-0.5F * x * x);
    return {x * cdf, cdf + x * density};
  }
  // (1 + tanh(u)) / 2 is the sigmoid of 2 u.
  const float k = 2 * 0.79788456F;  // 2 sqrt(2 / pi)
  const float square = x * x;
  const float u = x * fmaf(k * 0.044715F, square, k);
  // A slope of infinity times 0 would be a NaN, where the square of x is infinite.
  const float du = fmaf(k * 3 * 0.044715F, fminf(square, 1e30F), k);
  const float s = sigmoid_f32(u);
  const float y = x * s;
  return {y, fmaf(y * (1.0F - s), du, s)};
}

/// h = gelu(gate) up.
template <typename T, int V>
struct GegluForward {
  static constexpr const char* kName = "geglu_forward";
  static constexpr int kMaxThreads = 256;
  Global<const T> gate_up;  // (rows, 2 width), each row gate, then up
  Global<T> h;              // (rows, width)
  std::int64_t width;
  bool by_tanh;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= h.size) return;
    by_tanh ? run<true>(i) : run<false>(i);
  }

  template <bool kTanh>
  ATOLL_DEVICE void run(std::int64_t i) const {
    const std::int64_t at = i + i / width * width;
    const auto gate = Held<T, V>::of(gate_up.template load<V>(at));
    const auto up = Held<T, V>::of(gate_up.template load<V>(at + width));
    float out[V];
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) out[k] = gelu_values<kTanh>(gate[k]).y * up[k];
    h.template store<V>(i, packed<T>(out));
  }
};

/// dgate_up = gradient for dh, and h again unless it is empty. dgate_up may be gate_up.
template <typename T, int V>
struct GegluBackward {
  static constexpr const char* kName = "geglu_backward";
  static constexpr int kMaxThreads = 256;
  Global<const T> gate_up;
  Global<const T> dh;
  Global<T> dgate_up;
  Global<T> h;
  std::int64_t width;
  bool by_tanh;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= dh.size) return;
    by_tanh ? run<true>(i) : run<false>(i);
  }

  template <bool kTanh>
  ATOLL_DEVICE void run(std::int64_t i) const {
    const std::int64_t at = i + i / width * width;
    const auto gates = Held<T, V>::of(gate_up.template load<V>(at));
    const auto ups = Held<T, V>::of(gate_up.template load<V>(at + width));
    const auto dhs = Held<T, V>::of(dh.template load<V>(i));
    float out[V], dgate[V], dup[V];
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) {
      const GeluValues gelu = gelu_values<kTanh>(gates[k]);
      out[k] = gelu.y * ups[k];
      dgate[k] = dhs[k] * ups[k] * gelu.slope;
      dup[k] = dhs[k] * gelu.y;
    }
    if (h.size > 0) h.template store<V>(i, packed<T>(out));
    dgate_up.template store<V>(at, packed<T>(dgate));
    dgate_up.template store<V>(at + width, packed<T>(dup));
  }
};

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
    // Not asked for each element: a branch would keep them one behind the other.
    by_tanh ? run<true>(i) : run<false>(i);
  }

  template <bool kTanh>
  ATOLL_DEVICE void run(std::int64_t i) const {
    const auto xs = Held<T, V>::of(x.template load<V>(i));
    float out[V];
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) out[k] = gelu_values<kTanh>(xs[k]).y;
    y.template store<V>(i, packed<T>(out));
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
    by_tanh ? run<true>(i) : run<false>(i);
  }

  template <bool kTanh>
  ATOLL_DEVICE void run(std::int64_t i) const {
    const auto xs = Held<T, V>::of(x.template load<V>(i));
    const auto dys = Held<T, V>::of(dy.template load<V>(i));
    float grad[V], value[V];
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) {
      const GeluValues gelu = gelu_values<kTanh>(xs[k]);
      grad[k] = dys[k] * gelu.slope;
      value[k] = gelu.y;
    }
    dx.template store<V>(i, packed<T>(grad));
    if (y.size > 0) y.template store<V>(i, packed<T>(value));
  }
};

/// GeluBackward of rows, with sums[block] = the sums over the block's rows of dx as it is stored. A
/// block of threads takes 32 V columns; its warps take its rows in turn.
template <typename T, int V>
struct GeluBackwardColumns {
  static constexpr const char* kName = "gelu_backward";
  static constexpr int kMaxThreads = 256;
  static constexpr int kMinBlocks = 1;
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
      by_tanh ? run<true>(first, last, column, of_columns)
              : run<false>(first, last, column, of_columns);
    }
    const Shared<float> box = shared_memory<float>(0, column_box_size<V>(num_threads()));
    store_columns<V>(of_columns, width - left < kWarp * V ? width - left : kWarp * V, kWarp, box,
                     sums, block_y() * width + left);
  }

  template <bool kTanh>
  ATOLL_DEVICE void run(std::int64_t first, std::int64_t last, std::int64_t column,
                        float (&of_columns)[V]) const {
    ATOLL_NO_UNROLL
    for (std::int64_t row = first + warp(); row < last; row += num_threads() / kWarp) {
      const std::int64_t at = row * width + column;
      const auto xs = Held<T, V>::of(x.template load<V>(at));
      const auto dys = Held<T, V>::of(dy.template load<V>(at));
      float grad[V], value[V];
      ATOLL_UNROLL
      for (int k = 0; k < V; ++k) {
        const GeluValues gelu = gelu_values<kTanh>(xs[k]);
        grad[k] = dys[k] * gelu.slope;
        value[k] = gelu.y;
      }
      const auto stored = packed<T>(grad);
      dx.template store<V>(at, stored);
      if (y.size > 0) y.template store<V>(at, packed<T>(value));
      const auto held = Held<T, V>::of(stored);
      ATOLL_UNROLL
      for (int k = 0; k < V; ++k) of_columns[k] += held[k];
    }
  }
};

template <typename T, int V>
using ActivationKernelsOf = KernelList<SwigluForward<T, V>, SwigluBackward<T, V>, GegluForward<T, V>,
                                       GegluBackward<T, V>, GeluForward<T, V>, GeluBackward<T, V>,
                                       GeluBackwardColumns<T, V>>;
using ActivationKernels = Joined<ActivationKernelsOf<float, 1>, ActivationKernelsOf<float, 4>,
                                 ActivationKernelsOf<Bf16, 1>, ActivationKernelsOf<Bf16, 8>>;

}  // namespace atl::ops::cuda
