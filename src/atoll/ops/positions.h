#pragma once

#include "atoll/tensor/tensor.h"

namespace atl::ops {

/// Whether the host can read them. What a GPU has is checked before it is copied there.
bool is_readable(const Tensor& positions);

/// Checks that every row has a position in a table of `table_size` rows.
///
/// positions: i32 (B, T) with B * T = num_rows and T = rows_per_sequence, or undefined: row t of a
/// sequence is at t. Throws Error(kInternal) naming `op` and the first that is not in the table.
void check_positions(const char* op, const Tensor& positions, std::int64_t num_rows,
                     std::int64_t rows_per_sequence, std::int64_t table_size);

/// Checks that documents follow one another in sequences of T rows: a position is at least 0 and at
/// most one more than the position before it, and the first is 0. Spec as above.
///
/// Throws Error(kDamaged) naming the first that cannot be; Error(kInternal), naming `op`, for
/// another spec.
void check_documents(const char* op, const Tensor& positions, std::int64_t num_rows,
                     std::int64_t rows_per_sequence);

/// The position of row b * T + t, where `positions` is a tensor's data or null: t.
inline std::int64_t position_of(const std::int32_t* positions, std::int64_t row,
                                std::int64_t rows_per_sequence) {
  return positions == nullptr ? row % rows_per_sequence : positions[row];
}

/// The data of positions, or null when they are undefined.
inline const std::int32_t* position_data(const Tensor& positions) {
  return positions.defined() ? positions.data<std::int32_t>() : nullptr;
}

}  // namespace atl::ops
