#pragma once

#include "atoll/ops/update/update_target.h"

namespace atl::ops {

/// One Lion update's numbers (Chen et al. 2023, "Symbolic discovery of optimization algorithms",
/// algorithm 2).
struct LionStep {
  double lr = 0;
  double beta1 = 0.9;   ///< of the gradient and momentum whose sign is taken
  double beta2 = 0.99;  ///< of the momentum that is kept
  double weight_decay = 0;
  double grad_scale = 1;  ///< multiplies the gradient first
};

/// c = b1 m + (1-b1) g;  p -= lr (sign(c) + weight_decay p);  m = b2 m + (1-b2) g, with
/// sign(0) = 0. All are flat and of one length; grad and m are of the target's compute dtype.
void lion(Run& run, const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m);

}  // namespace atl::ops
