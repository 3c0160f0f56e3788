#pragma once

// The activations of f32 and bf16 on vector units; arguments as in ops/activation/activation.h,
// already checked.

#include "atoll/ops/activation/activation.h"

namespace atl::ops::cpu {

void swiglu_forward(Run& run, Tensor gate_up, Tensor h);
void swiglu_backward(Run& run, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h);
void geglu_forward(Run& run, Gelu kind, Tensor gate_up, Tensor h);
void geglu_backward(Run& run, Gelu kind, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h);
void gelu_forward(Run& run, Gelu kind, Tensor x, Tensor y);
void gelu_backward(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y, Tensor sums);

}  // namespace atl::ops::cpu
