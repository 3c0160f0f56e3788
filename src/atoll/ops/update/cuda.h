#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/update/adamw.h"
#include "atoll/ops/update/lion.h"
#include "atoll/ops/update/sgd.h"

namespace atl::ops::cuda {

// Operands as in ops/update/adamw.h, ops/update/lion.h and ops/update/sgd.h.

Declined adamw(Run& run, const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m,
               Tensor v);
Declined lion(Run& run, const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m);
Declined sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m);

}  // namespace atl::ops::cuda
