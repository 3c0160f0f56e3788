#pragma once

// The norm of query and key heads of f32 and bf16 on vector units; arguments as in ops/norm/norm.h,
// already checked.

#include "atoll/ops/norm/norm.h"

namespace atl::ops::cpu {

void qk_norm_forward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                     Tensor q_weight, Tensor k_weight, Tensor y, Tensor rstd);
void qk_norm_backward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                      Tensor q_weight, Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx,
                      Tensor dweights);
/// Scratch of qk_norm_backward: each block's sums of both weights' gradients.
std::size_t qk_norm_scratch_bytes(const HeadLayout& heads, const Spec& x);

}  // namespace atl::ops::cpu
