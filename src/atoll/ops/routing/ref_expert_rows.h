#pragma once

// The loops of ops/routing/expert_rows.h over a range of rows or tokens, for any storage.

#include <cstdint>
#include <cstring>
#include <vector>

#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// See ops::assign_rows. Returns how many choices have no row.
inline std::int64_t assign_rows(const std::int32_t* experts, std::int64_t tokens, std::int64_t k,
                                std::int64_t num_experts, std::int64_t capacity,
                                std::int32_t* places, std::int32_t* sources,
                                std::int32_t* offsets) {
  const std::int64_t choices = tokens * k;
  std::vector<std::int64_t> next(static_cast<std::size_t>(num_experts));
  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < choices; ++i) {
    std::int64_t& taken = next[static_cast<std::size_t>(experts[i])];
    taken < capacity ? ++taken : ++dropped;
  }
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    offsets[e] = static_cast<std::int32_t>(row);
    row += next[static_cast<std::size_t>(e)];
    next[static_cast<std::size_t>(e)] = offsets[e];
  }
  offsets[num_experts] = static_cast<std::int32_t>(row);
  for (std::int64_t i = 0; i < choices; ++i) sources[i] = -1;
  for (std::int64_t i = 0; i < choices; ++i) {
    std::int64_t& at = next[static_cast<std::size_t>(experts[i])];
    places[i] = -1;
    if (at == offsets[experts[i] + 1]) continue;
    places[i] = static_cast<std::int32_t>(at);
    sources[at++] = static_cast<std::int32_t>(i);
  }
  return dropped;
}

/// Rows [begin, end) of ops::gather_rows; `bytes` of a row.
inline void gather_rows(const std::byte* x, const std::int32_t* sources, std::int64_t k,
                        std::size_t bytes, std::byte* rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    std::byte* to = rows + static_cast<std::size_t>(i) * bytes;
    if (sources[i] < 0)
      std::memset(to, 0, bytes);
    else
      std::memcpy(to, x + static_cast<std::size_t>(sources[i] / k) * bytes, bytes);
  }
}

/// Tokens [begin, end) of ops::combine_rows; weights may be null. A row is summed in `sum`, which
/// is long enough for it.
template <typename T>
void combine_rows(const T* rows, const std::int32_t* places, const Compute<T>* weights,
                  std::int64_t k, std::int64_t width, Compute<T>* sum, T* y, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t c = 0; c < width; ++c) sum[c] = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t place = places[t * k + j];
      if (place < 0) continue;
      const T* row = rows + place * width;
      const Compute<T> weight = weights == nullptr ? Compute<T>{1} : weights[t * k + j];
      for (std::int64_t c = 0; c < width; ++c) sum[c] += weight * widen(row[c]);
    }
    for (std::int64_t c = 0; c < width; ++c) y[t * width + c] = narrow<T>(sum[c]);
  }
}

/// sum of a * b, in eight sums side by side.
template <typename T>
Compute<T> dot(const T* a, const T* b, std::int64_t n) {
  Compute<T> sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::int64_t s = 0; s < 8; ++s) sums[s] += widen(a[i + s]) * widen(b[i + s]);
  }
  for (; i < n; ++i) sums[0] += widen(a[i]) * widen(b[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <typename T>
void scale(Compute<T> factor, T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = narrow<T>(factor * widen(x[i]));
}

/// Rows [begin, end) of ops::weigh_rows, but for dweights that have no row. F elements in a row of
/// h and dh, D of d.
template <typename T>
void weigh_rows(const Compute<T>* weights, const std::int32_t* sources, const T* dh, T* h,
                std::int64_t F, T* d, std::int64_t D, Compute<T>* dweights, std::int64_t begin,
                std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    if (sources[i] < 0) continue;
    dweights[sources[i]] = dot(dh + i * F, h + i * F, F);
    scale(weights[sources[i]], h + i * F, F);
    scale(weights[sources[i]], d + i * D, D);
  }
}

}  // namespace atl::ops::ref
