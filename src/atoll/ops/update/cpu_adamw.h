#pragma once

// AdamW in f32 and vector units; arguments as in ops/update/adamw.h, already checked.

#include "atoll/ops/update/adamw.h"

namespace atl::ops::cpu {

/// What an AdamWStep comes to for each element, made in double and rounded once.
struct AdamWFactors {
  float grad_scale;
  float beta1;
  float rest1;  ///< 1 - beta1
  float beta2;
  float rest2;       ///< 1 - beta2
  float step_size;   ///< lr / (1 - beta1^step)
  float root_scale;  ///< 1 / sqrt(1 - beta2^step)
  float eps;
  float decay;  ///< lr * weight_decay
};

void adamw(Run& run, const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m,
           Tensor v);

}  // namespace atl::ops::cpu
