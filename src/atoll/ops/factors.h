#pragma once

// Matrices as two factors of low rank, in a GPU's memory: the pieces of PowerSGD
// (parallel/reduction_powersgd.cpp), in the bits of a CPU's threads there.

#include <cstdint>

#include "atoll/ops/factors_layout.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// Several matrices M and their factors P and Q. Flags, i32 (matrices), are 1 where all that a
/// matrix has come to so far is finite.
struct Factors {
  Tensor matrices;  ///< (matrices, kFactorColumns) i64
  std::int64_t rank = 0;
  std::int64_t most_rows = 0, most_cols = 0, most_elements = 0;  ///< of one matrix
  Tensor m;  ///< f32, flat, from element m_first of the flat vector on
  std::int64_t m_first = 0;
  Tensor p, q;  ///< f32, flat
  Tensor owed;  ///< f32, flat; undefined: nothing is owed
};

/// M += owed, and P^T = Q^T M^T, each number a sum in double over eight columns.
void project_rows(Run& run, const Factors& factors);
/// Q^T = P^T M, row by row, where the flag is 1; else 0.
void project_columns(Run& run, const Factors& factors, const Tensor& flags);
/// owed = M - P Q^T, rounded as by compress::round_owed in stretches of 256, where the flag is 1.
void owe_rest(Run& run, const Factors& factors, const Tensor& flags);
/// M = P Q^T where the flag is 1, else NaN.
void restore_product(Run& run, const Factors& factors, const Tensor& flags);

/// Of each matrix r vectors of n elements lie from `at` on in `from`: made = given and all of them
/// are finite. Where it is, `to` becomes the same vectors, which may lie in the same place, made
/// orthogonal and of length 1 or 0, by Gram and Schmidt; with undefined `to` they are looked at
/// only.
struct Orthogonalise {
  Tensor matrices;
  std::int64_t rank = 0;
  FactorColumn at = kFactorP;
  FactorColumn n = kFactorRows;
  Tensor from, to;
  Tensor given;  ///< flags; undefined: all 1
  Tensor made;
};
void orthogonalise(Run& run, const Orthogonalise& args);

}  // namespace atl::ops
