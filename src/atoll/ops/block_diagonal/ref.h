#pragma once

#include <cstring>

#include "atoll/ops/block_diagonal/block_diagonal.h"

namespace atl::ops::ref {

inline float widen(Bf16 value) {
  return to_f32(value);
}
inline float widen(float value) {
  return value;
}
inline double widen(double value) {
  return value;
}
inline void narrow(float value, Bf16& to) {
  to = to_bf16(value);
}
template <typename T>
void narrow(T value, T& to) {
  to = value;
}

/// ops::block_diagonal; r columns in a block.
template <typename T>
void block_diagonal(double scale, const T* x, std::span<const DiagonalBlock> blocks, std::int64_t n,
                    std::int64_t r, T* y) {
  const auto width = static_cast<std::int64_t>(blocks.size()) * r;
  std::memset(static_cast<void*>(y), 0, static_cast<std::size_t>(n * width) * sizeof(T));
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    for (std::int64_t i = 0; i < blocks[k].rows; ++i, x += r) {
      T* row = y + (blocks[k].row_begin + i) * width + static_cast<std::int64_t>(k) * r;
      for (std::int64_t j = 0; j < r; ++j) {
        const auto value = widen(x[j]);
        narrow(static_cast<decltype(value)>(scale) * value, row[j]);
      }
    }
  }
}

/// ops::block_diagonal_backward.
template <typename T>
void block_diagonal_backward(double scale, const T* dy, std::span<const DiagonalBlock> blocks,
                             std::int64_t r, T* dx) {
  const auto width = static_cast<std::int64_t>(blocks.size()) * r;
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    for (std::int64_t i = 0; i < blocks[k].rows; ++i, dx += r) {
      const T* row = dy + (blocks[k].row_begin + i) * width + static_cast<std::int64_t>(k) * r;
      for (std::int64_t j = 0; j < r; ++j) dx[j] += static_cast<T>(scale) * row[j];
    }
  }
}

}  // namespace atl::ops::ref
