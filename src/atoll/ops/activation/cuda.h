#pragma once

#include "atoll/ops/activation/activation.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

// Operands as in ops/activation/activation.h.

Declined swiglu_forward(Run& run, Tensor gate_up, Tensor h);
Declined swiglu_backward(Run& run, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h);
Declined geglu_forward(Run& run, Gelu kind, Tensor gate_up, Tensor h);
Declined geglu_backward(Run& run, Gelu kind, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h);
Declined gelu_forward(Run& run, Gelu kind, Tensor x, Tensor y);
Declined gelu_backward(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y, Tensor sums);

}  // namespace atl::ops::cuda
