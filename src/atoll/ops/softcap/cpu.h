#pragma once

#include "atoll/ops/run.h"

namespace atl::ops::cpu {

// In f32; operands as in softcap.h.

void softcap_forward(Run& run, double cap, Tensor x, Tensor y);
void softcap_backward(Run& run, double cap, Tensor y, Tensor dy, Tensor dx);

}  // namespace atl::ops::cpu
