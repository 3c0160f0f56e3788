#pragma once

// The reference of products with int8 weights: one sum after the other, in any float type.

#include <cstdint>

#include "atoll/base/thread_pool.h"
#include "atoll/ops/int8.h"

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

}  // namespace atl::ops::ref
