#pragma once

// The reference of products with int8 weights: one sum after the other, in any float type.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/int8/int8_arithmetic.h"

namespace atl::ops::ref {

/// Element (row, column) of an Int8Matrix.
inline float int8_element(const Int8Matrix& w, std::int64_t row, std::int64_t column) {
  const std::uint8_t byte = w.values.data<std::uint8_t>()[row * w.values.dim(1) + column];
  const float scale = w.scales.data<float>()[row * w.scales.dim(1) + column / kInt8Group];
  return static_cast<float>(static_cast<std::int8_t>(byte)) * scale;
}

/// y = x W^T [+ bias].  x: (m, K)  y: (m, N)  bias: (N) or null.
template <typename T>
void matmul_int8(ThreadPool& threads, std::int64_t m, const T* x, const Int8Matrix& w,
                 const T* bias, T* y) {
  const std::int64_t n = w.values.dim(0);
  const std::int64_t k = w.values.dim(1);
  threads.run(m, [&](std::int64_t i) {
    for (std::int64_t j = 0; j < n; ++j) {
      T sum = bias == nullptr ? T{0} : bias[j];
      for (std::int64_t c = 0; c < k; ++c) {
        sum += x[i * k + c] * static_cast<T>(int8_element(w, j, c));
      }
      y[i * n + j] = sum;
    }
  });
}

/// A row of activations in int8, (k), with the factor of each of its groups.
struct RoundedRow {
  std::vector<int> values;
  std::vector<float> scales;
};
inline RoundedRow rounded_row(const float* x, std::int64_t k) {
  RoundedRow row;
  for (std::int64_t begin = 0; begin < k; begin += kInt8Group) {
    const std::int64_t end = std::min(begin + kInt8Group, k);
    float largest = 0;
    for (std::int64_t c = begin; c < end; ++c) {
      largest = std::isnan(largest) || std::isnan(x[c]) ? NAN : std::max(largest, std::abs(x[c]));
    }
    const Int8Rounding rounding = int8_rounding(largest);
    row.scales.push_back(rounding.scale);
    for (std::int64_t c = begin; c < end; ++c) {
      const float q = rounding.factor == 0 ? 0.0F : std::nearbyintf(x[c] * rounding.factor);
      row.values.push_back(static_cast<int>(q));
    }
  }
  return row;
}

/// y = round(x) W^T [+ bias], see int8_arithmetic.h.  x: (m, K)  y: (m, N)  bias: (N) or null.
/// Of float the bits are those of every implementation.
template <typename T>
void matmul_rounded(ThreadPool& threads, std::int64_t m, const float* x, const Int8Matrix& w,
                    const T* bias, T* y) {
  const std::int64_t n = w.values.dim(0);
  const std::int64_t k = w.values.dim(1);
  const std::int64_t groups = w.scales.dim(1);
  threads.run(m, [&](std::int64_t i) {
    const RoundedRow row = rounded_row(x + i * k, k);
    for (std::int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (std::int64_t g = 0; g < groups; ++g) {
        int dot = 0;
        for (std::int64_t c = g * kInt8Group; c < std::min((g + 1) * kInt8Group, k); ++c) {
          const std::uint8_t byte = w.values.data<std::uint8_t>()[j * k + c];
          dot += row.values[static_cast<std::size_t>(c)] * static_cast<std::int8_t>(byte);
        }
        const T scaled =
            static_cast<T>(dot) * static_cast<T>(row.scales[static_cast<std::size_t>(g)]);
        sum = std::fma(scaled, static_cast<T>(w.scales.data<float>()[j * groups + g]), sum);
      }
      y[i * n + j] = sum + (bias == nullptr ? T{0} : bias[j]);
    }
  });
}

}  // namespace atl::ops::ref
