#pragma once

// The definitions of expert_factors.h, for any storage, in its compute type. A thread has whole
// rows; each element of a factor is read or written once.

#include <cstdint>

#include "atoll/ops/expert_factors/expert_factors.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// The file's row of row `row` of the product.
inline std::int64_t row_in_file(const FactorOrder& order, std::int64_t row, std::int64_t rank) {
  return order.by_rank ? row % rank * order.num_experts + row / rank : row;
}

template <typename T>
void order_factor(Run& run, double scale, const FactorOrder& order, Tensor factor, Tensor to) {
  const std::int64_t rows = to.dim(0), rank = rows / order.num_experts;
  const auto s = static_cast<Compute<T>>(scale);
  run.threads().run(rows, [&](std::int64_t row) {
    const T* from = factor.data<T>() + row_in_file(order, row, rank) * factor.dim(1);
    T* out = to.data<T>() + row * to.dim(1);
    for (const std::int64_t column : order.columns) *out++ = narrow<T>(s * widen(from[column]));
  });
}

template <typename T>
void order_factor_backward(Run& run, double scale, const FactorOrder& order, Tensor dto,
                           Tensor dfactor) {
  const std::int64_t rows = dto.dim(0), rank = rows / order.num_experts;
  const auto s = static_cast<T>(scale);
  run.threads().run(rows, [&](std::int64_t row) {
    const T* from = dto.data<T>() + row * dto.dim(1);
    T* out = dfactor.data<T>() + row_in_file(order, row, rank) * dfactor.dim(1);
    for (const std::int64_t column : order.columns) out[column] += s * *from++;
  });
}

}  // namespace atl::ops::ref
