#pragma once

// The pieces of Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural
// networks"): momentum, orthogonalisation, and the step along the result.

#include "atoll/ops/update/update_target.h"

namespace atl::ops {

/// How the gradient becomes a direction.
struct MuonMomentum {
  double momentum = 0.95;
  bool nesterov = true;
  double grad_scale = 1;  ///< multiplies the gradient first
};

/// m = momentum m + (1 - momentum) g;  direction = nesterov ? momentum m + (1 - momentum) g : m.
/// All are flat, of one length and dtype, f32 or f64; grad is left as it is.
void muon_momentum(Run& run, const MuonMomentum& numbers, Tensor grad, Tensor m, Tensor direction);

/// y = an orthogonal matrix near x: x over its Frobenius norm (or over 1e-7, if that is larger),
/// through five steps of X <- a X + b (X X^T) X + c (X X^T)^2 X with (a, b, c) = (3.4445, -4.7750,
/// 2.0315), which take singular values to about [0.7, 1.2]. x, y: (R, C), f32 or f64; x is
/// overwritten. The products run on the shorter side. Needs orthogonalize_scratch_bytes.
void orthogonalize(Run& run, Tensor x, Tensor y);
std::size_t orthogonalize_scratch_bytes(const Spec& x);

/// p -= step_size direction + decay p. direction: flat or a matrix, of the target's compute dtype
/// and length.
void apply_direction(Run& run, double step_size, double decay, const UpdateTarget& target,
                     Tensor direction);

}  // namespace atl::ops
