#pragma once

// How tables of matrices and their factors lie in memory, for the host and for kernels.

#include <cstdint>

namespace atl::ops {

/// Columns of a table of matrices, (matrices, kFactorColumns) of i64. With r the rank:
enum FactorColumn : std::int64_t {
  kFactorBegin,  ///< first element of the flat vector
  kFactorRows,
  kFactorCols,
  kFactorResidual,  ///< where it begins in the vector of the residual
  kFactorP,         ///< where its P^T begins, (r, rows)
  kFactorQ,         ///< where its Q^T begins, (r, cols)
  kFactorColumns
};

}  // namespace atl::ops
