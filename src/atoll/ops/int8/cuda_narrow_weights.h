#pragma once

// Products with weights in fewer bits than the activations, as generation keeps them.

#include "atoll/ops/implementations.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/args.h"

namespace atl::ops::cuda {

// Operands as in ops/int8/int8.h, on the device. Up to kFewRows rows of x are multiplied by a
// kernel that reads weights once. For more, blocks of weights are widened to f32 and multiplied as
// such, with narrow_weights_scratch_bytes of scratch.

constexpr std::int64_t kFewRows = 8;

Declined matmul_int8(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias);
/// Activations are rounded to int8, too; see ops/int8/int8_arithmetic.h. The bits are those of a
/// CPU.
Declined matmul_rounded(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias);
/// ops::matmul of f32 by bf16 into f32, Transpose::kNT; declines all else.
Declined matmul_bf16_weights(Run& run, const MatmulArgs& args);
/// The same kernels for groups of rows with a matrix each, kNT: see ops/matmul/grouped_matmul.h.
/// Operands are the GPU's and fit; weights are bf16, or int8. A group's matrix is read once for
/// each kFewRows of its rows.
void grouped_few_rows(Run& run, Tensor a, Tensor w, Tensor offsets, Tensor c);
void grouped_few_rows(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c);
/// Activations rounded too. Needs the scratch of matmul_rounded.
void grouped_rounded(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c);
/// Whoever calls has looked at the tokens (parallel/runner/device_batches.h).
Declined embedding_int8(Run& run, Tensor tokens, const Int8Matrix& table, Tensor y);

/// Scratch of each of these, for m rows of activations and weights of this shape (N, K).
std::size_t narrow_weights_scratch_bytes(std::int64_t m, const Shape& w);

}  // namespace atl::ops::cuda
