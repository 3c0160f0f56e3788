#pragma once

#include "atoll/ops/rope/rope.h"
#include "atoll/ops/run.h"

namespace atl::ops {

// Activations and weights share one dtype, of storage; statistics and weight gradients are in its
// compute dtype.

/// What an RMS norm adds to the mean of squares, and to its weight: a row is multiplied with
/// weight_offset + weight, which is summed in the compute dtype. The offset is 1 in Gemma.
struct RmsScale {
  // -0 leaves every weight as it is; 0 would make a weight of -0 into 0.
  RmsScale(double eps = 1e-6, double weight_offset = 0)
      : eps(eps), weight_offset(weight_offset == 0 ? -0.0 : weight_offset) {}

  double eps;
  double weight_offset;
};

/// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps) over the innermost dim (Zhang &
/// Sennrich 2019, eq. 4).  x, y: (..., C)  weight: (C)  rstd: (rows of x), kept for backward.
void rms_norm_forward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor y,
                      Tensor rstd);
/// dx = gradient of rms_norm_forward for dy [+ dresidual], the gradient that goes past the norm; on
/// a CPU that is added to what was rounded. In the same pass over x and dy, sums = the sums that
/// dweight is made of, for add_norm_sums. dx may be dy. dresidual and sums, of norm_sums_spec, may
/// be undefined.
void rms_norm_backward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor rstd,
                       Tensor dy, Tensor dresidual, Tensor dx, Tensor sums);

/// y = (x - mean) * rstd * weight + bias over the innermost dim (Ba et al. 2016).
/// x, y: (..., C)  weight, bias: (C)  mean, rstd: (rows of x), kept for backward.
void layer_norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor bias, Tensor y,
                        Tensor mean, Tensor rstd);
/// As rms_norm_backward; sums are those of dweight and of dbias.
void layer_norm_backward(Run& run, Tensor x, Tensor weight, Tensor mean, Tensor rstd, Tensor dy,
                         Tensor dresidual, Tensor dx, Tensor sums);

/// What is left of a norm's weight gradient between B and W: for fixed blocks of rows of x, on each
/// kind of device its own, `num_sums` (1 of an RMS norm, 2 of a layer norm) sums of each column.
Spec norm_sums_spec(const Spec& x, int num_sums);
/// dweight [and dbias] += the gradients whose sums a backward pass over `rows` rows left.
void add_norm_sums(Run& run, std::int64_t rows, Tensor sums, Tensor dweight, Tensor dbias = {});

/// y = x with rms_norm_forward over each query head (q_weight) and each key head (k_weight) of a
/// fused tensor (Henry et al. 2020; Qwen3's q_norm and k_norm); values are copied as they are.
///
/// x, y: (B, T, heads.qkv_width()), y not x  q_weight, k_weight: (head_dim), all of one dtype
/// rstd: (B, T, num_heads + num_kv_heads) in its compute dtype, kept for backward.
void qk_norm_forward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                     Tensor q_weight, Tensor k_weight, Tensor y, Tensor rstd);
/// dx = gradient of qk_norm_forward for dy; dx may be dy. dweights = the gradients of q_weight
/// (row 0) and k_weight (row 1), not added to what was there: (2, head_dim) in the compute dtype,
/// summed over fixed blocks of rows. Needs qk_norm_scratch_bytes of scratch.
void qk_norm_backward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                      Tensor q_weight, Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx,
                      Tensor dweights);
/// Scratch of qk_norm_backward for an x of this spec.
std::size_t qk_norm_scratch_bytes(const HeadLayout& heads, const Spec& x);

}  // namespace atl::ops
