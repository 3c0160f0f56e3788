#pragma once

#include "atoll/ops/adamw.h"
#include "atoll/ops/implementations.h"
#include "atoll/ops/lion.h"
#include "atoll/ops/sgd.h"

namespace atl::ops::cuda {

// Operands as in ops/adamw.h, ops/lion.h and ops/sgd.h.

Declined adamw(Run& run, const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m,
               Tensor v);
Declined lion(Run& run, const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m);
Declined sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m);

}  // namespace atl::ops::cuda
