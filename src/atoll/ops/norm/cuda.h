#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/norm/norm.h"

namespace atl::ops::cuda {

// Operands as in ops/norm/norm.h; bias, mean and dbias are undefined for an RMS norm.

Declined norm_forward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor bias,
                      Tensor y, Tensor mean, Tensor rstd);
Declined norm_backward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor mean,
                       Tensor rstd, Tensor dy, Tensor dresidual, Tensor dx, Tensor sums);
Declined add_norm_sums(Run& run, std::int64_t rows, Tensor sums, Tensor dweight, Tensor dbias);
/// Blocks of rows whose sums norm_backward leaves.
std::int64_t norm_row_blocks(std::int64_t rows);
Declined qk_norm_forward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                         Tensor q_weight, Tensor k_weight, Tensor y, Tensor rstd);
Declined qk_norm_backward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                          Tensor q_weight, Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx,
                          Tensor dweights);

}  // namespace atl::ops::cuda
