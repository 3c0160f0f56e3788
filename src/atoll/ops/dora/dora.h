#pragma once

// Weight-decomposed adapters (Liu et al. 2024, "DoRA"): each adapted row of a weight has a trained
// length, and a low-rank change turns it.

#include <span>

#include "atoll/ops/block_diagonal/block_diagonal.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// By what rows of W + change are multiplied so that they have the lengths `magnitude`:
/// gain[0, j] = magnitude[k] / |W[j] + change[j]| and gain[1, j] = 1 / |W[j] + change[j]| for the
/// rows j of `blocks`, row k of all of them in order. Other rows have 1 and 0 where `resets`, and
/// are left as they are otherwise. A sum is in double.
///
/// w, change: (N, K), f32, f64 or bf16  magnitude: (rows of all blocks), of w's dtype
/// gain: (2, N), of w's compute dtype. On a CPU only.
void dora_gain(Run& run, Tensor w, Tensor change, Tensor magnitude,
               std::span<const DiagonalBlock> blocks, bool resets, Tensor gain);

/// y[r, j] = gain[0, j] x[r, j]; y may be x.  x, y: (..., N), f32, f64 or bf16. On a CPU only.
void dora_scale(Run& run, Tensor x, Tensor gain, Tensor y);

/// dmagnitude[k] += the sum over r of dy[r, j] u[r, j] gain[1, j], in the order of r whatever the
/// number of threads: the gradient of dora_scale(u) with the lengths |W[j] + change[j]| held fixed.
/// dy, u: (..., N)  dmagnitude: (rows of all blocks), of their compute dtype. On a CPU only.
void dora_backward(Run& run, Tensor dy, Tensor u, Tensor gain,
                   std::span<const DiagonalBlock> blocks, Tensor dmagnitude);

}  // namespace atl::ops
