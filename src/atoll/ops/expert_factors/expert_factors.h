#pragma once

#include <cstdint>
#include <span>

#include "atoll/ops/run.h"

namespace atl::ops {

/// How a file of the PEFT library has one factor of the adapters of E stacked experts, of rank r,
/// and what a product takes of it. A grouped product takes each expert's rank by rank: row e r + j.
struct FactorOrder {
  std::int64_t num_experts = 1;
  /// Whether the file has rank j of expert e in row j E + e, as B's columns are; else in row
  /// e r + j, as A's rows are.
  bool by_rank = false;
  /// Which columns of the file the product's are, one after the other.
  std::span<const std::int64_t> columns;
};

/// to[e r + j, k] = scale factor[row of rank j of expert e, columns[k]].
/// factor: (E r, M)  to: (E r, columns), of one dtype: f32, f64 or bf16, rounded once. On a CPU.
void order_factor(Run& run, double scale, const FactorOrder& order, Tensor factor, Tensor to);
/// dfactor[row of rank j of expert e, columns[k]] += scale dto[e r + j, k]: the gradient of
/// order_factor. f32 or f64.
void order_factor_backward(Run& run, double scale, const FactorOrder& order, Tensor dto,
                           Tensor dfactor);

}  // namespace atl::ops
