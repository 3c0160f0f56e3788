#pragma once

// The norms of f32 and bf16 on vector units; arguments as in ops/norm.h, already checked.

#include "atoll/ops/run.h"

namespace atl::ops::cpu {

void rms_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor y, Tensor rstd);
void rms_norm_backward_input(Run& run, Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx);
void rms_norm_backward_weight(Run& run, Tensor x, Tensor rstd, Tensor dy, Tensor dweight);
void layer_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor bias, Tensor y,
                        Tensor mean, Tensor rstd);
void layer_norm_backward_input(Run& run, Tensor x, Tensor weight, Tensor mean, Tensor rstd,
                               Tensor dy, Tensor dx);
void layer_norm_backward_weight(Run& run, Tensor x, Tensor mean, Tensor rstd, Tensor dy,
                                Tensor dweight, Tensor dbias);

/// Scratch of the two weight gradients.
std::size_t norm_scratch_bytes(const Spec& x);

}  // namespace atl::ops::cpu
