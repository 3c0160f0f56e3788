#pragma once

// The definitions of group_bias.h, for any storage, in its compute type. Threads share out groups
// and rows, never a sum.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "atoll/ops/run.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// Element i of a tensor of any float dtype.
template <typename A>
A element_as(const Tensor& tensor, std::int64_t i) {
  if (tensor.dtype() == Dtype::kBf16) return static_cast<A>(widen(tensor.data<Bf16>()[i]));
  if (tensor.dtype() == Dtype::kF64) return static_cast<A>(tensor.data<double>()[i]);
  return static_cast<A>(tensor.data<float>()[i]);
}

/// rows = bias, or rows += bias where `adds`.
template <typename T>
void group_bias(Run& run, bool adds, Tensor bias, Tensor offsets, Tensor rows) {
  using A = Compute<T>;
  constexpr std::int64_t kRowsPerTask = 16;
  const std::int64_t N = rows.dim(1);
  const auto* begins = offsets.data<std::int32_t>();
  const auto* ends = begins + offsets.num_elements();
  run.threads().run_chunked(rows.dim(0), kRowsPerTask, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      T* to = rows.data<T>() + row * N;
      const std::int64_t group = std::upper_bound(begins, ends, row) - begins - 1;
      if (group + 1 >= offsets.num_elements()) {
        if (!adds) std::fill_n(to, N, T{});
        continue;
      }
      for (std::int64_t i = 0; i < N; ++i) {
        const A shift = element_as<A>(bias, group * N + i);
        to[i] = narrow<T>(adds ? widen(to[i]) + shift : shift);
      }
    }
  });
}

template <typename T>
void add_group_sums(Run& run, Tensor rows, Tensor offsets, Tensor dbias) {
  using A = Compute<T>;
  const std::int64_t N = rows.dim(1);
  const auto* begins = offsets.data<std::int32_t>();
  run.threads().run(offsets.num_elements() - 1, [&](std::int64_t group) {
    std::vector<A> sums(static_cast<std::size_t>(N));
    for (std::int64_t row = begins[group]; row < begins[group + 1]; ++row) {
      const T* from = rows.data<T>() + row * N;
      for (std::int64_t i = 0; i < N; ++i) sums[static_cast<std::size_t>(i)] += widen(from[i]);
    }
    A* to = dbias.data<A>() + group * N;
    for (std::int64_t i = 0; i < N; ++i) to[i] += sums[static_cast<std::size_t>(i)];
  });
}

}  // namespace atl::ops::ref
