#pragma once

// Elementwise ops as their definitions say, for any storage, in its compute type.

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// y = a + b.
template <typename T>
void add(Tensor a, Tensor b, Tensor y) {
  for (std::int64_t i = 0; i < y.num_elements(); ++i) {
    y.data<T>()[i] = narrow<T>(widen(a.data<T>()[i]) + widen(b.data<T>()[i]));
  }
}

/// y = factor x.
template <typename T>
void scale(double factor, Tensor x, Tensor y) {
  using Compute = decltype(widen(T()));
  const auto size = static_cast<Compute>(factor);
  for (std::int64_t i = 0; i < y.num_elements(); ++i) {
    y.data<T>()[i] = narrow<T>(size * widen(x.data<T>()[i]));
  }
}

/// y = x + bias for each row. Simple enough for the compiler to use vectors.
template <typename T>
void add_bias(ThreadPool& threads, Tensor x, Tensor bias, Tensor y) {
  const std::int64_t width = bias.num_elements();
  const T* shift = bias.data<T>();
  threads.run_chunked(x.shape().num_rows(), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* from = x.data<T>() + row * width;
      T* to = y.data<T>() + row * width;
      for (std::int64_t i = 0; i < width; ++i) to[i] = narrow<T>(widen(from[i]) + widen(shift[i]));
    }
  });
}

/// y = x / (1 - p) or 0; see ops/elementwise/elementwise.h.
template <typename T>
void dropout(const Run& run, double p, std::int64_t layer, Tensor x, Tensor y, RowPart part = {}) {
  const std::int64_t num_rows = part.count * x.dim(1), width = x.dim(2);
  const std::int64_t size = num_rows * width;
  const std::int64_t here = part.index * x.num_elements();
  for (std::int64_t i = 0; i < x.num_elements(); ++i) {
    const std::int64_t sample = (here + i) / size;
    const RngStream stream = dropout_stream(run.seed, layer, run.step, run.first_sample + sample);
    const std::int64_t token = part.tokens.token((here + i) % size / width, num_rows);
    const bool keep = stream.uniform(static_cast<std::uint64_t>(token * width + i % width)) >= p;
    const Compute<T> kept = widen(x.data<T>()[i]) * static_cast<Compute<T>>(1 / (1 - p));
    y.data<T>()[i] = narrow<T>(keep ? kept : 0);
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
