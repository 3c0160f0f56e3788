#pragma once

#include "atoll/ops/implementations.h"

namespace atl::ops {

/// A checked column_sum call.
struct ColumnSumArgs {
  Tensor dy;
  Tensor dbias;
};
struct AddColumnSumsArgs {
  Tensor sums;
  Tensor dbias;
};

/// Blocks of rows whose sums are kept apart, on every device: of at least 64 rows, and at most 64,
/// so that the sums stay small.
struct ColumnSumRows {
  std::int64_t rows_per_block = 0;
  std::int64_t count = 0;
};
constexpr ColumnSumRows column_sum_rows(std::int64_t rows) {
  const std::int64_t each = rows > 64 * 64 ? (rows + 63) / 64 : 64;
  return {each, (rows + each - 1) / each};
}

namespace cpu {

/// Serves a dy of f32 or bf16: partial f32 sums over fixed blocks of rows in the scratch, then
/// their sum in order.
Declined column_sum(Run& run, const ColumnSumArgs& args);
/// Scratch of column_sum for a dy of `rows` rows of `n`.
Declined add_column_sums(Run& run, const AddColumnSumsArgs& args);
std::size_t column_sum_scratch_bytes(std::int64_t rows, std::int64_t n);
/// sums[block] = the column sums of dy's rows of that block; f32 and bf16.
void sum_row_blocks(Run& run, const Tensor& dy, const Tensor& sums);

}  // namespace cpu
}  // namespace atl::ops
