#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

/// y = cap tanh(x / cap), elementwise: x where it is small, and below cap in size everywhere (Bello
/// et al. 2016, "Neural Combinatorial Optimization with Reinforcement Learning"; Gemma 2's logits).
/// f32 or f64, x and y of one dtype; y may be x. cap > 0.
void softcap_forward(Run& run, double cap, Tensor x, Tensor y);

/// dx = dy (1 - (y / cap)^2), where y is what softcap_forward gave; dx may be dy.
void softcap_backward(Run& run, double cap, Tensor y, Tensor dy, Tensor dx);

}  // namespace atl::ops
