#pragma once

// Gradient descent in f32 and vector units; arguments as in ops/update/sgd.h, already checked.

#include "atoll/ops/update/sgd.h"

namespace atl::ops::cpu {

/// What an SgdStep comes to for each element. The direction is look_ahead g + carried m:
/// (1, momentum) is Nesterov's, (0, 1) plain momentum's.
struct SgdFactors {
  float grad_scale;
  float weight_decay;
  float momentum;
  float look_ahead;
  float carried;
  float lr;
};

void sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m);

}  // namespace atl::ops::cpu
