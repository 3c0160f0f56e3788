#pragma once

// How a trained adapter changes weights, in double precision with one rounding at the end.

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/tensor/tensor.h"

namespace atl::model_dir {

/// W + s L R of some rows of a weight, whose rows or columns then get the lengths that DoRA trained
/// (Liu et al. 2024, equation 5).
struct LowRankChange {
  std::int64_t rank = 0;
  double scale = 0;
  std::vector<float> left;            ///< L: (rows, rank)
  std::vector<float> right;           ///< R: (rank, in)
  std::vector<float> row_lengths;     ///< (rows), or empty: rows keep theirs
  std::vector<float> column_lengths;  ///< (in), or empty: columns keep theirs
};

/// Changes rows of a weight.  rows: (rows, in), f32 or bf16
void add_low_rank(const LowRankChange& change, const Tensor& rows);

/// lengths[j] = |rows[j]|, summed in double.  rows: (rows, in)  lengths: (rows), both f32 or bf16
void row_lengths(const Tensor& rows, const Tensor& lengths);

/// Adds scale times `more` to a vector.  values: (n), f32 or bf16
void add_scaled(double scale, std::span<const float> more, const Tensor& values);

/// Puts rows in place of others.  table: (V, C), f32 or bf16  rows: (indices, C)
void replace_rows(std::span<const std::int64_t> indices, std::span<const float> rows,
                  const Tensor& table);

/// The mean of all rows, summed in double in their order.  table: (V, C), f32 or bf16
std::vector<float> mean_of_rows(const Tensor& table);

/// (rows, columns) to (columns, rows).
std::vector<float> transposed(std::span<const float> values, std::int64_t rows,
                              std::int64_t columns);

}  // namespace atl::model_dir
