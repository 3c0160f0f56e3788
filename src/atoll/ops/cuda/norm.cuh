#pragma once

// Norms: a warp for each row, whose lanes take V neighbouring elements each. Rows are read again
// from the first-level cache rather than kept.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// y = (x - mean) rstd weight + bias (kLayer), or x rstd weight.
template <typename T, int V, bool kLayer>
struct NormForward {
  static constexpr const char* kName = kLayer ? "layer_norm_forward" : "rms_norm_forward";
  static constexpr int kMaxThreads = 128;
  Global<const T> x;       // (rows, width)
  Global<const T> weight;  // (width)
  Global<const T> bias;    // (width), as mean for kLayer alone
  Global<T> y;             // (rows, width)
  Global<float> mean;      // (rows)
  Global<float> rstd;      // (rows)
  std::int64_t rows;
  std::int64_t width;
  float eps;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const std::int64_t begin = row * width;
    const auto count = static_cast<float>(width);
    float m = 0;
    if constexpr (kLayer) {
      float sum = 0;
      for (std::int64_t c = lane() * V; c < width; c += kWarp * V) {
        const auto pack = x.template load<V>(begin + c);
        for (int i = 0; i < V; ++i) sum += widened(pack[i]);
      }
      m = warp_sum(sum) / count;
    }
    float square = 0;
    for (std::int64_t c = lane() * V; c < width; c += kWarp * V) {
      const auto pack = x.template load<V>(begin + c);
      for (int i = 0; i < V; ++i) {
        const float value = widened(pack[i]) - m;
        square += value * value;
      }
    }
    const float r = 1.0F / sqrtf(warp_sum(square) / count + eps);
    if (lane() == 0) {
      if constexpr (kLayer) mean.store(row, m);
      rstd.store(row, r);
    }
    for (std::int64_t c = lane() * V; c < width; c += kWarp * V) {
      const auto pack = x.template load<V>(begin + c);
      const auto w = weight.template load<V>(c);
      Pack<T, V> out, shift;
      if constexpr (kLayer) shift = bias.template load<V>(c);
      for (int i = 0; i < V; ++i) {
        const float value = (widened(pack[i]) - m) * r * widened(w[i]);
        if constexpr (kLayer)
          out[i] = narrowed<T>(value + widened(shift[i]));
        else
          out[i] = narrowed<T>(value);
      }
      y.template store<V>(begin + c, out);
    }
  }
};

/// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy weight; without mean(g) for RMS. dx may be
/// dy.
template <typename T, int V, bool kLayer>
struct NormBackwardInput {
  static constexpr const char* kName =
      kLayer ? "layer_norm_backward_input" : "rms_norm_backward_input";
  static constexpr int kMaxThreads = 128;
  Global<const T> x;
  Global<const T> weight;
  Global<const float> mean;
  Global<const float> rstd;
  Global<const T> dy;
  Global<T> dx;
  std::int64_t rows;
  std::int64_t width;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const std::int64_t begin = row * width;
    const float m = kLayer ? mean.load(row) : 0.0F;
    const float r = rstd.load(row);
    float sum_g = 0, sum_gx = 0;
    for (std::int64_t c = lane() * V; c < width; c += kWarp * V) {
      const auto xs = x.template load<V>(begin + c);
      const auto dys = dy.template load<V>(begin + c);
      const auto w = weight.template load<V>(c);
      for (int i = 0; i < V; ++i) {
        const float g = widened(dys[i]) * widened(w[i]);
        sum_g += g;
        sum_gx += g * ((widened(xs[i]) - m) * r);
      }
    }
    const auto count = static_cast<float>(width);
    const float mean_g = kLayer ? warp_sum(sum_g) / count : 0.0F;
    const float mean_gx = warp_sum(sum_gx) / count;
    for (std::int64_t c = lane() * V; c < width; c += kWarp * V) {
      const auto xs = x.template load<V>(begin + c);
      const auto dys = dy.template load<V>(begin + c);
      const auto w = weight.template load<V>(c);
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) {
        const float g = widened(dys[i]) * widened(w[i]);
        out[i] = narrowed<T>(r * (g - mean_g - (widened(xs[i]) - m) * r * mean_gx));
      }
      dx.template store<V>(begin + c, out);
    }
  }
};

/// y = rms_norm(x) over each query and key head; value heads are copied. A warp for each head.
template <typename T>
struct QkNormForward {
  static constexpr const char* kName = "qk_norm_forward";
  static constexpr int kMaxThreads = 128;
  Global<const T> x;         // (rows, num_heads of all three kinds, head_dim)
  Global<const T> q_weight;  // (head_dim)
  Global<const T> k_weight;
  Global<T> y;
  Global<float> rstd;  // (rows, query and key heads)
  std::int64_t rows;
  int query_heads;
  int kv_heads;
  int head_dim;
  float eps;

  ATOLL_DEVICE void operator()() const {
    const int heads = query_heads + 2 * kv_heads;
    const int normed = query_heads + kv_heads;
    const std::int64_t at = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (at >= rows * heads) return;
    const auto head = static_cast<int>(at % heads);
    float r = 0;
    if (head < normed) {
      float square = 0;
      for (int d = lane(); d < head_dim; d += kWarp) {
        const float value = widened(x.load(at * head_dim + d));
        square += value * value;
      }
      r = 1.0F / sqrtf(warp_sum(square) / static_cast<float>(head_dim) + eps);
      if (lane() == 0) rstd.store(at / heads * normed + head, r);
    }
    for (int d = lane(); d < head_dim; d += kWarp) {
      const T value = x.load(at * head_dim + d);
      if (head >= normed) {
        y.store(at * head_dim + d, value);
        continue;
      }
      const float w = widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
      y.store(at * head_dim + d, narrowed<T>(widened(value) * r * w));
    }
  }
};

/// dx of QkNormForward; dx may be dy.
template <typename T>
struct QkNormBackward {
  static constexpr const char* kName = "qk_norm_backward";
  static constexpr int kMaxThreads = 128;
  Global<const T> x;
  Global<const T> q_weight;
  Global<const T> k_weight;
  Global<const float> rstd;
  Global<const T> dy;
  Global<T> dx;
  std::int64_t rows;
  int query_heads;
  int kv_heads;
  int head_dim;

  ATOLL_DEVICE void operator()() const {
    const int heads = query_heads + 2 * kv_heads;
    const int normed = query_heads + kv_heads;
    const std::int64_t at = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (at >= rows * heads) return;
    const auto head = static_cast<int>(at % heads);
    float r = 0, mean_gx = 0;
    if (head < normed) {
      r = rstd.load(at / heads * normed + head);
      float sum = 0;
      for (int d = lane(); d < head_dim; d += kWarp) {
        const float w = widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
        sum += widened(dy.load(at * head_dim + d)) * w * (widened(x.load(at * head_dim + d)) * r);
      }
      mean_gx = warp_sum(sum) / static_cast<float>(head_dim);
    }
    for (int d = lane(); d < head_dim; d += kWarp) {
      const T grad = dy.load(at * head_dim + d);
      if (head >= normed) {
        dx.store(at * head_dim + d, grad);
        continue;
      }
      const float w = widened(head < query_heads ? q_weight.load(d) : k_weight.load(d));
      const float xhat = widened(x.load(at * head_dim + d)) * r;
      dx.store(at * head_dim + d, narrowed<T>(r * (widened(grad) * w - xhat * mean_gx)));
    }
  }
};

template <typename T, int V>
using NormKernelsOf = KernelList<NormForward<T, V, false>, NormForward<T, V, true>,
                                 NormBackwardInput<T, V, false>, NormBackwardInput<T, V, true>>;
using NormKernels = Joined<NormKernelsOf<float, 1>, NormKernelsOf<float, 4>, NormKernelsOf<Bf16, 1>,
                           NormKernelsOf<Bf16, 8>>;
using QkNormKernels = KernelList<QkNormForward<float>, QkNormForward<Bf16>, QkNormBackward<float>,
                                 QkNormBackward<Bf16>>;

}  // namespace atl::ops::cuda
