#pragma once

#include "atoll/ops/activation/activation.h"
#include "atoll/ops/matmul/transpose.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// c = op(a) op(b) [+ bias] [+ c]. Either all are f64, or each of a, b and c is f32 or bf16: sums
/// run in f32, and a bf16 c is rounded once, at the end.
///
/// a: (M, K), or (K, M) for kTN.  b: (K, N), or (N, K) for kNT.  c: (M, N).  bias: (N), of b's
/// dtype or f32 beside bf16, or undefined. Leading dims of a rank-3 tensor are folded into its
/// rows. No operand may overlap c. Sums run in an order that depends on the shapes alone, never on
/// the number of threads. Throws Error(kInternal) on shapes that do not fit. Needs
/// matmul_scratch_bytes of scratch.
void matmul(Run& run, Transpose transpose, Tensor a, Tensor b, Tensor c, Tensor bias = {},
            bool accumulate = false);

/// c = residual + op(a) op(b) [+ bias], as matmul() otherwise. On a GPU the product adds it, and c
/// is rounded once; on a CPU c is a product, to which the residual is added then, with the bits of
/// two ops.  residual: (M, N), of c's dtype.
void matmul_add(Run& run, Transpose transpose, Tensor a, Tensor b, Tensor residual, Tensor c,
                Tensor bias = {});

/// hidden = x W^T [+ bias] and h = gelu(hidden).  x: (..., C)  weight: (F, C)  hidden, h: (..., F).
/// From Hopper on a GPU's product writes both in bf16, tanh's kind, and h then is that of a hidden
/// that was not rounded. Needs matmul_scratch_bytes of scratch.
void linear_gelu(Run& run, Gelu kind, Tensor x, Tensor weight, Tensor bias, Tensor hidden,
                 Tensor h);

/// Scratch for a matmul of these operands. On the CPU at hand it is room for one of them, packed;
/// with bf16 there is none but on CPUs with AMX. Besides, each thread keeps room for pieces of
/// either operand from its first product on: 0.75 MiB for f32, 3.5 MiB for bf16 that is widened,
/// 2 MiB for bf16 in tiles of AMX. On a GPU it does not depend on the CPU at hand.
std::size_t matmul_scratch_bytes(Transpose transpose, const Spec& a, const Spec& b,
                                 DeviceKind device = DeviceKind::kCpu);

/// dbias += column sums of dy.  dy: (R, N)  dbias: (N), in dy's compute dtype. Needs
/// column_sum_scratch_bytes of scratch.
void column_sum(Run& run, Tensor dy, Tensor dbias);
std::size_t column_sum_scratch_bytes(const Spec& dy);

/// What an op that makes dy leaves of its column sums for later: sums over fixed blocks of rows,
/// (blocks, N) in the compute dtype.
Spec column_sums_spec(const Spec& dy);
/// dbias += what such sums come to, with the bits of column_sum.
void add_column_sums(Run& run, Tensor sums, Tensor dbias);

}  // namespace atl::ops
