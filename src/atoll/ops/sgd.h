#pragma once

#include "atoll/ops/update_target.h"

namespace atl::ops {

/// One update's numbers for gradient descent with momentum, as torch.optim.SGD has them with
/// dampening 0 (Sutskever et al. 2013 for Nesterov's form).
struct SgdStep {
  double lr = 0;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  ///< added to the gradient (L2), not decoupled
  double grad_scale = 1;    ///< multiplies the gradient first, the decay not
};

/// d = g + weight_decay p;  m = momentum m + d;  p -= lr (nesterov ? d + momentum m : m).
/// All are flat and of one length; grad and m are of the target's compute dtype. With momentum 0
/// there is no m: pass an undefined Tensor.
void sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m);

}  // namespace atl::ops
