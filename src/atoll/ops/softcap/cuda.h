#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/run.h"

namespace atl::ops::cuda {

// In f32; operands as in softcap.h.

Declined softcap_forward(Run& run, double cap, Tensor x, Tensor y);
Declined softcap_backward(Run& run, double cap, Tensor y, Tensor dy, Tensor dx);

}  // namespace atl::ops::cuda
