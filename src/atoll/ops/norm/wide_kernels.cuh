#pragma once

// Norms over rows that are too wide, or too oddly cut, for the teams of norm.cuh: a warp for each
// row, whose lanes take V neighbouring elements each.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// NormForward for such rows, which are read again for each sum.
template <typename T, int V, bool kLayer>
struct WideNormForward {
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
  float offset;  // added to the weight of an RMS norm

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
        const float xhat = (widened(pack[i]) - m) * r;
        if constexpr (kLayer)
          out[i] = narrowed<T>(xhat * widened(w[i]) + widened(shift[i]));
        else
          out[i] = narrowed<T>(xhat * (offset + widened(w[i])));
      }
      y.template store<V>(begin + c, out);
    }
  }
};

/// dx of NormBackward for such rows. dx may be dy.
template <typename T, int V, bool kLayer>
struct WideNormBackward {
  static constexpr const char* kName = kLayer ? "layer_norm_backward" : "rms_norm_backward";
  static constexpr int kMaxThreads = 128;
  Global<const T> x;
  Global<const T> weight;
  Global<const float> mean;
  Global<const float> rstd;
  Global<const T> dy;
  Global<const T> dresidual;  // none: no elements
  Global<T> dx;
  std::int64_t rows;
  std::int64_t width;
  float offset;  // as in WideNormForward

  ATOLL_DEVICE float scale_of(T w) const { return kLayer ? widened(w) : offset + widened(w); }

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
        const float g = widened(dys[i]) * scale_of(w[i]);
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
      Pack<T, V> out, past = {};
      if (dresidual.size > 0) past = dresidual.template load<V>(begin + c);
      for (int i = 0; i < V; ++i) {
        const float g = widened(dys[i]) * scale_of(w[i]);
        float grad = r * (g - mean_g - (widened(xs[i]) - m) * r * mean_gx);
        if (dresidual.size > 0) grad += widened(past[i]);
        out[i] = narrowed<T>(grad);
      }
      dx.template store<V>(begin + c, out);
    }
  }
};

template <typename T, int V>
using WideNormKernelsOf = KernelList<WideNormForward<T, V, false>, WideNormForward<T, V, true>,
                                     WideNormBackward<T, V, false>, WideNormBackward<T, V, true>>;
using WideNormKernels = Joined<WideNormKernelsOf<float, 1>, WideNormKernelsOf<float, 4>,
                               WideNormKernelsOf<Bf16, 1>, WideNormKernelsOf<Bf16, 8>>;

}  // namespace atl::ops::cuda
