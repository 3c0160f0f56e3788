#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

// All operands of a call share one dtype: f32, f64 or bf16, rounded once.

/// h = silu(gate) * up (Shazeer 2020, eq. 6).  gate_up: (..., 2F), each row gate then up.  h: (...,
/// F)
void swiglu_forward(Run& run, Tensor gate_up, Tensor h);
/// dgate_up = gradient of swiglu_forward for dh, and h again unless it is undefined, so that
/// forward need not keep it. dgate_up may be gate_up's memory only if nobody needs gate_up later; h
/// may not alias dh.
void swiglu_backward(Run& run, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h = {});

/// The two GELUs in use: 0.5 x (1 + erf(x / sqrt 2)), and GPT-2's tanh approximation ("gelu_new").
enum class Gelu { kErf, kTanh };
/// h = gelu(gate) * up (Shazeer 2020, eq. 6).  gate_up: (..., 2F), each row gate then up.  h: (...,
/// F)
void geglu_forward(Run& run, Gelu kind, Tensor gate_up, Tensor h);
/// dgate_up = gradient of geglu_forward for dh, and h again unless it is undefined. Aliases as in
/// swiglu_backward.
void geglu_backward(Run& run, Gelu kind, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h = {});
/// y = gelu(x), elementwise (Hendrycks & Gimpel 2016).
void gelu_forward(Run& run, Gelu kind, Tensor x, Tensor y);
/// dx = gradient of gelu_forward for dy, and gelu_forward's y again unless it is undefined, so that
/// forward need not keep it. dx may be dy; y may not be any other. Unless sums, of
/// column_sums_spec(dx), is undefined: the column sums of dx, for add_column_sums.
void gelu_backward(Run& run, Gelu kind, Tensor x, Tensor dy, Tensor dx, Tensor y = {},
                   Tensor sums = {});

}  // namespace atl::ops
