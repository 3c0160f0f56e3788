#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/row_team.cuh"

namespace atl::ops::cuda {

/// y = cap tanh(x / cap), V elements a thread; see ops/softcap/softcap.h.
template <int V>
struct SoftcapForward {
  static constexpr const char* kName = "softcap_forward";
  static constexpr int kMaxThreads = 256;
  Global<const float> x;
  Global<float> y;
  float cap, inverse;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= y.size) return;
    const auto from = x.template load<V>(i);
    Pack<float, V> to;
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) to[k] = cap * tanh_f32(from[k] * inverse);
    y.template store<V>(i, to);
  }
};

/// dx = dy (1 - (y / cap)^2).
template <int V>
struct SoftcapBackward {
  static constexpr const char* kName = "softcap_backward";
  static constexpr int kMaxThreads = 256;
  Global<const float> y;
  Global<const float> dy;
  Global<float> dx;
  float inverse;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= dx.size) return;
    const auto values = y.template load<V>(i);
    const auto from = dy.template load<V>(i);
    Pack<float, V> to;
    ATOLL_UNROLL
    for (int k = 0; k < V; ++k) {
      const float t = values[k] * inverse;
      to[k] = from[k] * fmaf(-t, t, 1.0F);
    }
    dx.template store<V>(i, to);
  }
};

using SoftcapKernels =
    KernelList<SoftcapForward<1>, SoftcapForward<4>, SoftcapBackward<1>, SoftcapBackward<4>>;

}  // namespace atl::ops::cuda
