#pragma once

#include <cmath>

#include "atoll/ops/dora/dora.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// ops::dora_gain for rows [first, last) of a block that begins at `row` of W, with `magnitude` of
/// its first row.
template <typename T>
void dora_gain(const T* w, const T* change, const T* magnitude, std::int64_t row,
               std::int64_t first, std::int64_t last, std::int64_t n, std::int64_t width,
               Compute<T>* gain) {
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t at = (row + i) * width;
    double sum = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const double element = double{widen(w[at + k])} + double{widen(change[at + k])};
      sum += element * element;
    }
    const double inverse = 1 / std::sqrt(sum);
    gain[row + i] = static_cast<Compute<T>>(widen(magnitude[i]) * inverse);
    gain[n + row + i] = static_cast<Compute<T>>(inverse);
  }
}

/// ops::dora_scale of rows [first, last).
template <typename T>
void dora_scale(const T* x, const Compute<T>* gain, std::int64_t first, std::int64_t last,
                std::int64_t n, T* y) {
  for (std::int64_t r = first; r < last; ++r) {
    for (std::int64_t j = 0; j < n; ++j) y[r * n + j] = narrow<T>(widen(x[r * n + j]) * gain[j]);
  }
}

/// ops::dora_backward of rows [first, last) of a block that begins at column `row` of dy.
template <typename T>
void dora_backward(const T* dy, const T* u, const Compute<T>* gain, std::int64_t row,
                   std::int64_t first, std::int64_t last, std::int64_t n, std::int64_t num_rows,
                   Compute<T>* dmagnitude) {
  for (std::int64_t i = first; i < last; ++i) {
    double sum = 0;
    for (std::int64_t r = 0; r < num_rows; ++r) {
      const std::int64_t at = r * n + row + i;
      sum += double{widen(dy[at])} * double{widen(u[at])};
    }
    dmagnitude[i] += static_cast<Compute<T>>(sum * gain[n + row + i]);
  }
}

}  // namespace atl::ops::ref
