#pragma once

// Products with the stacked weights of groups, as of experts, that stay in the bits of their file:
// one group's are widened at a time, and only those of groups that have rows.

#include <cstddef>

#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"

namespace atl::ops {

/// grouped_matmul, in the bits of the same weights widened to a's dtype: f32 or bf16. `w` has the
/// same number of rows for each group. Needs grouped_matmul_packed_scratch_bytes of scratch. On a
/// CPU.
void grouped_matmul_packed(Run& run, Transpose transpose, const Tensor& a, const PackedMatrix& w,
                           const Tensor& offsets, const Tensor& c);

/// Scratch for products of rows y (R, N) and x (R, K) with `w`, (G N, K), of so many groups G.
std::size_t grouped_matmul_packed_scratch_bytes(const Spec& y, const Spec& x, const Shape& w,
                                                std::int64_t num_groups);

}  // namespace atl::ops
