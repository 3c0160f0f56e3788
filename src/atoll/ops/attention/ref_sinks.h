#pragma once

// Sinks as attention_sinks.h defines them, for any storage, in its compute type.

#include <cmath>
#include <vector>

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// The sinks in another float type.
template <typename A>
std::vector<A> sinks_as(const Tensor& sinks) {
  std::vector<A> wide(static_cast<std::size_t>(sinks.num_elements()));
  for (std::size_t h = 0; h < wide.size(); ++h) {
    if (sinks.dtype() == Dtype::kBf16)
      wide[h] = static_cast<A>(widen(sinks.data<Bf16>()[h]));
    else if (sinks.dtype() == Dtype::kF64)
      wide[h] = static_cast<A>(sinks.data<double>()[h]);
    else
      wide[h] = static_cast<A>(sinks.data<float>()[h]);
  }
  return wide;
}

/// Arguments as in attention_sinks.h. Threads share out the rows.
template <typename T>
void attention_sinks(Run& run, const HeadLayout& heads, Tensor sinks, Tensor out, Tensor lse) {
  using A = Compute<T>;
  constexpr std::int64_t kRowsPerTask = 16;
  const std::int64_t H = heads.num_heads, D = heads.head_dim, num_rows = out.dim(1);
  const std::vector<A> logits = sinks_as<A>(sinks);
  run.threads().run_chunked(
      out.dim(0) * num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          for (std::int64_t h = 0; h < H; ++h) {
            A& sum = lse.data<A>()[(row / num_rows * H + h) * num_rows + row % num_rows];
            const A sink = logits[static_cast<std::size_t>(h)];
            const A both = std::max(sum, sink) + std::log1p(std::exp(-std::abs(sum - sink)));
            const A factor = std::exp(sum - both);
            T* values = out.data<T>() + (row * H + h) * D;
            for (std::int64_t d = 0; d < D; ++d) values[d] = narrow<T>(factor * widen(values[d]));
            sum = both;
          }
        }
      });
}

template <typename T>
void attention_sinks_backward(Run& run, const HeadLayout& heads, Tensor sinks, Tensor out,
                              Tensor lse, Tensor dout, Tensor dsinks) {
  using A = Compute<T>;
  const std::int64_t H = heads.num_heads, D = heads.head_dim, num_rows = out.dim(1);
  const std::vector<A> logits = sinks_as<A>(sinks);
  run.threads().run(H, [&](std::int64_t h) {
    double sum = 0;
    for (std::int64_t row = 0; row < out.dim(0) * num_rows; ++row) {
      const A row_lse = lse.data<A>()[(row / num_rows * H + h) * num_rows + row % num_rows];
      const std::int64_t at = (row * H + h) * D;
      A delta = 0;
      for (std::int64_t d = 0; d < D; ++d) {
        delta += widen(dout.data<T>()[at + d]) * widen(out.data<T>()[at + d]);
      }
      sum -= static_cast<double>(std::exp(logits[static_cast<std::size_t>(h)] - row_lse) * delta);
    }
    dsinks.data<A>()[h] = static_cast<A>(sum);
  });
}

}  // namespace atl::ops::ref
