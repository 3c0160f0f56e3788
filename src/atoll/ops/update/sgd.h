#pragma once

#include "atoll/ops/update/update_target.h"

namespace atl::ops {

/// One update's numbers for gradient descent with momentum, as torch.optim.SGD has them with
/// dampening 0 (Sutskever et al. 2013 for Nesterov's form), but with decoupled weight decay (SGDW,
/// Loshchilov & Hutter 2019, algorithm 1).
struct SgdStep {
  double lr = 0;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double grad_scale = 1;  ///< multiplies the gradient first
};

/// m = momentum m + g;  p -= lr ((nesterov ? g + momentum m : m) + weight_decay p).
/// All are flat and of one length; grad and m are of the target's compute dtype. With momentum 0
/// there is no m: pass an undefined Tensor.
void sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m);

}  // namespace atl::ops
