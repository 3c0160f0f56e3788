#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

// The gated delta rule (Yang et al. 2024, "Gated Delta Networks", equation 10): a head has a matrix
// S of keys by values in place of a cache. A token lets it fade, takes back what it says of its
// key, and writes its own value there:
//   S_t = exp(g_t) S_{t-1},  S_t += k_t (beta_t (v_t - S_t^T k_t))^T,  y_t = S_t^T q_t.
// q and k come normalised and scaled, g is at most 0 and beta from 0 to 1: that is for the caller.
// One token after another: the definition that faster kernels are tested against. On a CPU.

/// Operands of one pass.  q, k: (B, T, H, K)  v: (B, T, H, V)  g, beta: (B, T, H), f32 or f64.
struct GatedDelta {
  Tensor q, k, v, g, beta;
};

/// y: (B, T, H, V), as v.  states: (B, H, T + 1, K V): the matrix before the first token, which is
/// read, and after each, which the backward pass needs.
void gated_delta_forward(Run& run, const GatedDelta& in, Tensor states, Tensor y);
/// The gradients of all operands, written, not added. `states` are those of the forward pass. The
/// matrix before the first token gets none.
void gated_delta_backward(Run& run, const GatedDelta& in, Tensor states, Tensor dy,
                          const GatedDelta& gradients);

}  // namespace atl::ops
