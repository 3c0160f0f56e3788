#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "atoll/ckpt/safetensors/writer.h"

namespace atl::ckpt {

/// Fills `out` with row `row` of a tensor.
using RowReader = std::function<void(std::int64_t row, std::span<float> out)>;

/// A tensor on its way from one file format to another, as rows of f32: the form in which every
/// format can give and take any other's tensors without holding more than one.
struct FloatRows {
  std::string name;
  std::vector<std::int64_t> shape;  ///< 1 to 4 dims, outermost first, none of them 0
  /// Begins to read; what it needs to hold lives as long as the reader.
  std::function<RowReader()> open;

  std::int64_t width() const { return shape.back(); }
  std::int64_t num_rows() const;
};

/// Row r of the result is row `from(r)` of `rows`. A vector's elements count as rows.
FloatRows reorder_rows(FloatRows rows, std::function<std::int64_t(std::int64_t)> from);

/// Every element plus `number`, in f32.
FloatRows add_to_rows(FloatRows rows, float number);

/// A matrix (m, n) as (n, m). Its reader holds the whole matrix.
FloatRows transpose_rows(FloatRows rows);

/// Matrices of one shape (m, n) as one tensor (count, m, n). Its reader has the readers of all.
FloatRows stack_matrices(std::vector<FloatRows> matrices);

/// Matrix `index` of a stack (count, m, n).
FloatRows matrix_of_stack(FloatRows stack, std::int64_t index);

/// Rows [begin, begin + count) of a matrix.
FloatRows rows_between(FloatRows rows, std::int64_t begin, std::int64_t count);

/// Matrices of as many columns, one below the other. Its reader has the readers of all.
FloatRows join_rows(std::vector<FloatRows> matrices);

/// A tensor to be written in safetensors as `dtype`. What f16 cannot hold is an Error(kUser) while
/// writing.
TensorSource to_source(FloatRows rows, Dtype dtype);

}  // namespace atl::ckpt
