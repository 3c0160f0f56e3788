#pragma once

#include <cstddef>

#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::ops {

// One product for each of G groups whose rows lie together, as experts' do: group g has the rows
// [offsets[g], offsets[g + 1]) of R, offsets i32 (G + 1) ascending from 0. The groups' weights are
// stacked. Dtypes, order of sums and scratch are those of matmul; how many rows a group has may
// change which kernel serves it, never the number of threads.

/// c_g = a_g op(w_g), and 0 in the rows after the last group.
/// kNT: a (R, K)  w (G N, K)  c (R, N).  kNN: a (R, N)  w (G N, K)  c (R, K). No operand may
/// overlap c. Needs grouped_matmul_scratch_bytes of scratch.
void grouped_matmul(Run& run, Transpose transpose, Tensor a, Tensor w, Tensor offsets, Tensor c);

/// dw_g += a_g^T b_g.  a: (R, N)  b: (R, K)  dw: (G N, K), in their compute dtype. Needs
/// grouped_matmul_scratch_bytes of scratch.
void grouped_matmul_tn(Run& run, Tensor a, Tensor b, Tensor offsets, Tensor dw);

/// grouped_matmul, kNT, of weights in int8. Needs grouped_matmul_int8_scratch_bytes of scratch.
void grouped_matmul_int8(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c);

/// Scratch for products of rows (R, N) and (R, K) with weights of `w`, and for dw from them.
std::size_t grouped_matmul_scratch_bytes(const Spec& a, const Spec& b, const Spec& w,
                                         std::int64_t num_groups,
                                         DeviceKind device = DeviceKind::kCpu);
std::size_t grouped_matmul_int8_scratch_bytes(const Spec& a, const Shape& w,
                                              std::int64_t num_groups);

}  // namespace atl::ops
