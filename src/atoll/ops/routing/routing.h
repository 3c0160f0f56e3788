#pragma once

// The router of a mixture of experts: which experts each token goes through, with what weight, and
// the gradients of that. All of it runs in the compute dtype of the model (f32, f64 in tests). All
// but route_tokens need routing_scratch_bytes of scratch.

#include "atoll/ops/run.h"

namespace atl::ops {

/// Each token's top_k experts, the most probable first (Shazeer et al. 2017), and their weights.
///
/// logits: (T, E)  experts: i32 (T, K)  weights: (T, K), softmax(logits) at these experts, divided
/// by its sum over them when `normalize`. Of equal logits the lower number wins, so every result is
/// a function of the logits alone. K <= E.
void route_tokens(Run& run, bool normalize, Tensor logits, Tensor experts, Tensor weights);

/// What the router's own losses weigh: times Run::loss_scale, d(step loss)/d(loss summed over the
/// tokens).
struct RouterLosses {
  /// Load balance, E sum_e f_e P_e a token: f_e is how often an expert was chosen a token, P_e its
  /// mean probability (Fedus et al. 2022, eq. 4-6, for top_k choices).
  double balance = 0;
  /// (log sum_e exp logit_e)^2 a token (Zoph et al. 2022, "ST-MoE", eq. 5).
  double z = 0;
  /// How often each expert was chosen by the tokens that f_e is of, f64 (E); undefined: by these.
  Tensor counts = {};
};

/// counts = how often each expert was chosen. experts: i32 (T, K)  counts: f64 (E).
void count_choices(Run& run, Tensor experts, Tensor counts);

/// dlogits = the gradient of route_tokens for dweights, and of the router's losses. f_e counts as a
/// constant.  dweights: (T, K)  dlogits: (T, E).
void route_tokens_backward(Run& run, bool normalize, const RouterLosses& losses, Tensor logits,
                           Tensor experts, Tensor weights, Tensor dweights, Tensor dlogits);

/// Adds to `sums`, f64 (E + 4): how often each expert was chosen; T; how many
/// choices have no row (places below 0); both losses summed over the tokens.  places: i32 (T, K).
/// `counts` as in RouterLosses.
void add_router_sums(Run& run, Tensor logits, Tensor experts, Tensor places, Tensor sums,
                     Tensor counts = {});

/// Scratch for `choices`, (T, K), among so many experts.
std::size_t routing_scratch_bytes(const Shape& choices, std::int64_t num_experts);

}  // namespace atl::ops
