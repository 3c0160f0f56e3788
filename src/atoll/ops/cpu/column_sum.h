#pragma once

#include "atoll/ops/implementations.h"

namespace atl::ops {

/// A checked column_sum call.
struct ColumnSumArgs {
  Tensor dy;
  Tensor dbias;
};

namespace cpu {

/// Serves a dy of f32 or bf16: partial f32 sums over fixed blocks of rows in the scratch, then
/// their sum in order.
Declined column_sum(Run& run, const ColumnSumArgs& args);
/// Scratch of column_sum for a dy of `rows` rows of `n`.
std::size_t column_sum_scratch_bytes(std::int64_t rows, std::int64_t n);

}  // namespace cpu
}  // namespace atl::ops
