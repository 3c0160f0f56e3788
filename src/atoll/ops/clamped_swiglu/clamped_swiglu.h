#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

// All operands of a call share one dtype: f32, f64 or bf16, rounded once. On a CPU only.

/// gpt-oss's SwiGLU with bounds (OpenAI 2025): h = g sigmoid(1.702 g) (u + 1), where g is gate, at
/// most `limit`, and u is up within [-limit, limit].
/// gate_up: (..., 2F), each row gate then up.  h: (..., F).  limit > 0.
void clamped_swiglu_forward(Run& run, double limit, Tensor gate_up, Tensor h);

/// dgate_up = gradient of clamped_swiglu_forward for dh, and h again. What lies beyond a bound has
/// none; on it, it has all. dgate_up may be gate_up; h may not alias dh.
void clamped_swiglu_backward(Run& run, double limit, Tensor gate_up, Tensor dh, Tensor dgate_up,
                             Tensor h);

}  // namespace atl::ops
