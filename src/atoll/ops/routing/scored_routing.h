#pragma once

// Routers that choose and weigh by more than a softmax of the largest logits: DeepSeek's. On a CPU
// so far; ops/routing/routing.h has the plain router.

#include "atoll/ops/routing/router_form.h"
#include "atoll/ops/routing/routing.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// Each token's top_k experts by `form`, the best first, and their weights.
///
/// logits: (T, E)  correction: (E), of any storage dtype, or undefined: none
/// experts: i32 (T, K)  weights: (T, K), in the dtype of the logits. Of equal numbers the lower
/// expert or group wins. E is a multiple of form.num_groups, and K at most the experts of
/// top_groups of them.
void route_scored_tokens(Run& run, const RouterForm& form, Tensor logits, Tensor correction,
                         Tensor experts, Tensor weights);

/// dlogits = the gradient of route_scored_tokens for dweights, and of the router's losses: choices
/// count as constants. The load-balance loss sees each expert's score over the sum of all scores,
/// and the z-loss the logits.  dweights: (T, K)  dlogits: (T, E).
void route_scored_tokens_backward(Run& run, const RouterForm& form, const RouterLosses& losses,
                                  Tensor logits, Tensor experts, Tensor weights, Tensor dweights,
                                  Tensor dlogits);

/// As add_router_sums, with the load-balance loss of `form`.
void add_scored_router_sums(Run& run, const RouterForm& form, Tensor logits, Tensor experts,
                            Tensor places, Tensor sums, Tensor counts = {});

}  // namespace atl::ops
