#pragma once

// Lion in f32 and vector units; arguments as in ops/update/lion.h, already checked.

#include "atoll/ops/update/lion.h"

namespace atl::ops::cpu {

/// What a LionStep comes to for each element, made in double and rounded once.
struct LionFactors {
  float grad_scale;
  float beta1;
  float rest1;  ///< 1 - beta1
  float beta2;
  float rest2;  ///< 1 - beta2
  float lr;
  float decay;  ///< lr * weight_decay
};

void lion(Run& run, const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m);

}  // namespace atl::ops::cpu
