#pragma once

#include "atoll/ops/run.h"

namespace atl::optim {

/// The Euclidean norm of a flat gradient; infinite or NaN when an element is.
double grad_norm(Run& run, Tensor grads);

/// What to multiply gradients with so that their norm is at most `max_norm` (Pascanu et al. 2013);
/// 1 when it already is, and when max_norm is 0, which means "no clipping".
double clip_scale(double norm, double max_norm);

}  // namespace atl::optim
