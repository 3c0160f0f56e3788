#pragma once

// The definition of clamped_swiglu.h, for any storage, in its compute type. Threads share out rows.

#include <algorithm>
#include <cmath>

#include "atoll/ops/run.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// The sigmoid's slope, with which g sigmoid(1.702 g) is near to GELU (Hendrycks and Gimpel 2016).
inline constexpr double kSwigluAlpha = 1.702;
inline constexpr std::int64_t kSwigluRowsPerTask = 4;

template <typename T>
void clamped_swiglu_forward(Run& run, double bound, Tensor gate_up, Tensor h) {
  using A = Compute<T>;
  const std::int64_t F = h.dim(-1);
  const A limit = static_cast<A>(bound), alpha = static_cast<A>(kSwigluAlpha);
  run.threads().run_chunked(h.shape().num_rows(), kSwigluRowsPerTask,
                            [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t row = begin; row < end; ++row) {
                                const T* gate = gate_up.data<T>() + row * 2 * F;
                                T* to = h.data<T>() + row * F;
                                for (std::int64_t i = 0; i < F; ++i) {
                                  const A g = std::min(widen(gate[i]), limit);
                                  const A u = std::clamp(widen(gate[F + i]), -limit, limit);
                                  const A s = 1 / (1 + std::exp(-alpha * g));
                                  to[i] = narrow<T>(g * s * (u + 1));
                                }
                              }
                            });
}

template <typename T>
void clamped_swiglu_backward(Run& run, double bound, Tensor gate_up, Tensor dh, Tensor dgate_up,
                             Tensor h) {
  using A = Compute<T>;
  const std::int64_t F = h.dim(-1);
  const A limit = static_cast<A>(bound), alpha = static_cast<A>(kSwigluAlpha);
  run.threads().run_chunked(
      h.shape().num_rows(), kSwigluRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const T* gate = gate_up.data<T>() + row * 2 * F;
          T* dgate = dgate_up.data<T>() + row * 2 * F;
          for (std::int64_t i = 0; i < F; ++i) {
            const A g0 = widen(gate[i]), u0 = widen(gate[F + i]);
            const A g = std::min(g0, limit), u = std::clamp(u0, -limit, limit);
            const A s = 1 / (1 + std::exp(-alpha * g));
            const A d = widen(dh.data<T>()[row * F + i]);
            const A dg = d * (u + 1) * s * (1 + alpha * g * (1 - s));
            dgate[i] = narrow<T>(g0 <= limit ? dg : A{0});
            dgate[F + i] = narrow<T>(std::abs(u0) <= limit ? d * g * s : A{0});
            h.data<T>()[row * F + i] = narrow<T>(g * s * (u + 1));
          }
        }
      });
}

}  // namespace atl::ops::ref
