#pragma once

// Between f32 and bf16, on vector units.

#include <cstddef>

#include "atoll/simd/bf16.h"

namespace atl::simd {

/// A matrix in memory: element (i, j) is at data[i * stride + j].
template <typename T>
struct MatrixRows {
  T* data;
  std::size_t stride;
};

/// to = from, exactly; (rows, cols) elements, which must not overlap.
void widen_rows(std::size_t rows, std::size_t cols, MatrixRows<const Bf16> from,
                MatrixRows<float> to);
/// to = from rounded to nearest even, as to_bf16; must not overlap.
void narrow_rows(std::size_t rows, std::size_t cols, MatrixRows<const float> from,
                 MatrixRows<Bf16> to);

}  // namespace atl::simd
