#pragma once

// Elementwise ops as their definitions say, for any storage, in its compute type.

#include "atoll/ops/elementwise.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// y = a + b.
template <typename T>
void add(Tensor a, Tensor b, Tensor y) {
  for (std::int64_t i = 0; i < y.num_elements(); ++i) {
    y.data<T>()[i] = narrow<T>(widen(a.data<T>()[i]) + widen(b.data<T>()[i]));
  }
}

/// y = x / (1 - p) or 0; see ops/elementwise.h.
template <typename T>
void dropout(const Run& run, double p, std::int64_t layer, Tensor x, Tensor y) {
  const std::int64_t size = x.dim(1) * x.dim(2);
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    const RngStream stream = dropout_stream(run.seed, layer, run.step, run.first_sample + b);
    for (std::int64_t i = 0; i < size; ++i) {
      const bool keep = stream.uniform(static_cast<std::uint64_t>(i)) >= p;
      const Compute<T> kept =
          widen(x.data<T>()[b * size + i]) * static_cast<Compute<T>>(1 / (1 - p));
      y.data<T>()[b * size + i] = narrow<T>(keep ? kept : 0);
    }
  }
}

/// The sum of squares, in double.
template <typename T>
double sum_of_squares(Tensor x) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.num_elements(); ++i) {
    const double value = x.data<T>()[i];
    sum += value * value;
  }
  return sum;
}

}  // namespace atl::ops::ref
