#pragma once

// Matrices as two factors of low rank, in a GPU's memory: the pieces of PowerSGD
// (parallel/compress/reduction_powersgd.cpp), in the bits of a CPU's threads there.

#include <cstdint>

#include "atoll/ops/codes/factors_layout.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// Several matrices M and their factors P and Q. The functions below take and give flags, i32
/// (matrices): 1 while all numbers that were computed for a matrix are finite, else 0.
struct Factors {
  Tensor matrices;  ///< (matrices, kFactorColumns) i64
  std::int64_t rank = 0;
  std::int64_t most_rows = 0, most_cols = 0, most_elements = 0;  ///< of one matrix
  Tensor m;  ///< f32, flat, from element m_first of the flat vector on
  std::int64_t m_first = 0;
  Tensor p, q;      ///< f32, flat
  Tensor residual;  ///< f32, flat: what the last factors left out of M; undefined: 0
};

/// M += residual, and P^T = Q^T M^T, each number a sum in double over eight columns.
void project_rows(Run& run, const Factors& factors);
/// Q^T = P^T M, row by row, where the flag is 1; else 0.
void project_columns(Run& run, const Factors& factors, const Tensor& flags);
/// residual = M - P Q^T, rounded as by compress::round_residual in stretches of 256, where the flag
/// is 1.
void keep_residual(Run& run, const Factors& factors, const Tensor& flags);
/// M = P Q^T where the flag is 1, else NaN.
void restore_product(Run& run, const Factors& factors, const Tensor& flags);

/// The Gram-Schmidt process, for each matrix on its own: reads `rank` vectors of n elements and
/// writes orthogonal ones, each of length 1, or 0 where a vector depends on those before it.
/// A matrix keeps its flag only if all its vectors are finite; `to` is written only where the flag
/// is 1.
struct Orthogonalise {
  Tensor matrices;               ///< as Factors::matrices
  std::int64_t rank = 0;         ///< vectors of each matrix
  FactorColumn at = kFactorP;    ///< the column with the offset of a matrix's first vector
  FactorColumn n = kFactorRows;  ///< the column with the elements of a vector
  Tensor from, to;               ///< may be the same memory; undefined `to`: only flags are made
  Tensor given;                  ///< flags before; undefined: all 1
  Tensor made;                   ///< flags after
};
void orthogonalise(Run& run, const Orthogonalise& args);

}  // namespace atl::ops
