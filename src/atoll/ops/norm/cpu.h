#pragma once

// The norms of f32 and bf16 on vector units; arguments as in ops/norm/norm.h, already checked.

#include "atoll/ops/norm/norm.h"

namespace atl::ops::cpu {

void rms_norm_forward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor y,
                      Tensor rstd);
void layer_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor bias, Tensor y,
                        Tensor mean, Tensor rstd);
/// An RMS norm's where mean is undefined. The residual's gradient is added to a rounded dx.
void norm_backward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor mean,
                   Tensor rstd, Tensor dy, Tensor dresidual, Tensor dx, Tensor sums);
void add_norm_sums(Run& run, std::int64_t rows, Tensor sums, Tensor dweight, Tensor dbias);

/// Blocks of rows whose sums are kept apart.
std::int64_t norm_row_blocks(std::int64_t rows);

}  // namespace atl::ops::cpu
