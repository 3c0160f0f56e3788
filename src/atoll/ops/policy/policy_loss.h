#pragma once

// The loss of tokens that a policy has drawn and that were rewarded.

#include <cstdint>
#include <span>

#include "atoll/ops/run.h"

namespace atl::ops {

/// log softmax(logits)[target], in nats; sums run in double, in the order of the logits.
/// logits: (vocab_size). NaN or infinite where the logits are not finite.
double log_softmax_at(const float* logits, std::int64_t vocab_size, std::int32_t target);

/// How far a token's probability is moved (Schulman et al. 2017; both bounds: DAPO, Yu et al.
/// 2025).
struct PolicyLoss {
  double clip_low = 0.2;
  double clip_high = 0.2;
  double kl = 0;  ///< weight of the divergence from a reference, by exp(d) - d - 1
};

/// What is known of a drawn token before the loss. Log-probabilities are in nats.
struct DrawnTokenFacts {
  double advantage = 0;
  double sampled = 0;    ///< its log-probability when it was drawn
  double reference = 0;  ///< its log-probability by the reference; read only with PolicyLoss::kl
};

/// The loss of a token, and how its probability has moved.
struct PolicyOutcome {
  double logprob = 0;    ///< its log-probability now
  double loss = 0;       ///< to be made small
  double slope = 0;      ///< d(loss) / d(logprob)
  double ratio = 1;      ///< exp(logprob - sampled)
  double entropy = 0;    ///< of the distribution that it was drawn from, now
  double kl = 0;         ///< exp(d) - d - 1 with d = reference - logprob; 0 without a reference
  bool clipped = false;  ///< the bound has taken the advantage's slope away
};

/// loss = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) + kl (exp(d) - d - 1), for a
/// token whose log-probability now is `logprob`. Fills all members but the entropy.
PolicyOutcome policy_outcome(const PolicyLoss& how, const DrawnTokenFacts& token, double logprob);

/// The losses of rows of logits, which become run.loss_scale * d(sum of losses)/d(logits) where
/// `gradient`. A row without a target (kIgnoreTarget) has no loss and no gradient.
/// logits: f32 or f64 (R, V)  targets: i32 (R)  tokens, outcomes: R each  loss: (R), of the dtype
/// of the logits. On a CPU. Throws Error(kDamaged) for a target outside [0, V).
void policy_loss_of_logits(Run& run, const PolicyLoss& how, const Tensor& logits,
                           const Tensor& targets, std::span<const DrawnTokenFacts> tokens,
                           std::span<PolicyOutcome> outcomes, const Tensor& loss, bool gradient);

}  // namespace atl::ops
