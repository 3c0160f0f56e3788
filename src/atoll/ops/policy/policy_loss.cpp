#include "atoll/ops/policy/policy_loss.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/ops/cross_entropy/args.h"

namespace atl::ops {

namespace {

// What a softmax is made of.
struct Softmax {
  double largest = 0;
  double sum = 0;  // of exp(logit - largest)

  template <typename T>
  Softmax(const T* logits, std::int64_t vocab_size)
      : largest(static_cast<double>(*std::max_element(logits, logits + vocab_size))) {
    for (std::int64_t i = 0; i < vocab_size; ++i) {
      sum += std::exp(static_cast<double>(logits[i]) - largest);
    }
  }
  template <typename T>
  double log_of(T logit) const {
    return static_cast<double>(logit) - largest - std::log(sum);
  }
};

template <typename T>
double entropy_of(const Softmax& softmax, const T* logits, std::int64_t vocab_size) {
  double mean = 0;  // of logit - largest
  for (std::int64_t i = 0; i < vocab_size; ++i) {
    const double shifted = static_cast<double>(logits[i]) - softmax.largest;
    mean += std::exp(shifted) / softmax.sum * shifted;
  }
  return std::log(softmax.sum) - mean;
}

// The logits become `slope` * d(log-probability of target)/d(logits).
template <typename T>
void differentiate(const Softmax& softmax, double slope, std::int32_t target,
                   std::int64_t vocab_size, T* logits) {
  for (std::int64_t i = 0; i < vocab_size; ++i) {
    const double shifted = static_cast<double>(logits[i]) - softmax.largest;
    logits[i] = static_cast<T>(-slope * std::exp(shifted) / softmax.sum);
  }
  logits[target] += static_cast<T>(slope);
}

template <typename T>
void take_rows(Run& run, const PolicyLoss& how, const Tensor& logits, const std::int32_t* targets,
               std::span<const DrawnTokenFacts> tokens, std::span<PolicyOutcome> outcomes,
               const Tensor& loss, bool gradient) {
  const std::int64_t vocab_size = logits.dim(1);
  run.threads().run(logits.dim(0), [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    T* const of_row = logits.data<T>() + row * vocab_size;
    outcomes[at] = {};
    loss.data<T>()[row] = 0;
    if (targets[row] == kIgnoreTarget) {
      if (gradient) std::fill(of_row, of_row + vocab_size, T{0});
      return;
    }
    const Softmax softmax(of_row, vocab_size);
    PolicyOutcome& outcome = outcomes[at];
    outcome = policy_outcome(how, tokens[at], softmax.log_of(of_row[targets[row]]));
    outcome.entropy = entropy_of(softmax, of_row, vocab_size);
    loss.data<T>()[row] = static_cast<T>(outcome.loss);
    if (!gradient) return;
    differentiate(softmax, run.loss_scale * outcome.slope, targets[row], vocab_size, of_row);
  });
}

}  // namespace

double log_softmax_at(const float* logits, std::int64_t vocab_size, std::int32_t target) {
  return Softmax(logits, vocab_size).log_of(logits[target]);
}

PolicyOutcome policy_outcome(const PolicyLoss& how, const DrawnTokenFacts& token, double logprob) {
  PolicyOutcome outcome = {.logprob = logprob};
  outcome.ratio = std::exp(logprob - token.sampled);
  const double bounded = std::clamp(outcome.ratio, 1 - how.clip_low, 1 + how.clip_high);
  const double free = outcome.ratio * token.advantage;
  // Of equals the first: inside the bounds, where both are the same, the slope stays.
  outcome.clipped = bounded * token.advantage < free;
  outcome.loss = -(outcome.clipped ? bounded * token.advantage : free);
  outcome.slope = outcome.clipped ? 0 : -free;
  if (how.kl > 0) {
    const double d = token.reference - logprob;
    outcome.kl = std::exp(d) - d - 1;
    outcome.loss += how.kl * outcome.kl;
    outcome.slope += how.kl * (1 - std::exp(d));
  }
  return outcome;
}

void policy_loss_of_logits(Run& run, const PolicyLoss& how, const Tensor& logits,
                           const Tensor& targets, std::span<const DrawnTokenFacts> tokens,
                           std::span<PolicyOutcome> outcomes, const Tensor& loss, bool gradient) {
  const std::int64_t rows = logits.dim(0);
  ATOLL_CHECK(std::ssize(tokens) == rows && std::ssize(outcomes) == rows, "{} and {} of {} rows",
              tokens.size(), outcomes.size(), rows);
  ATOLL_CHECK(targets.num_elements() == rows && loss.num_elements() == rows &&
                  loss.dtype() == logits.dtype(),
              "targets {}, losses {} for logits {}", targets.spec().to_string(),
              loss.spec().to_string(), logits.spec().to_string());
  check_targets(targets, logits.dim(1));
  const auto* const of_rows = targets.data<std::int32_t>();
  if (logits.dtype() == Dtype::kF64) {
    return take_rows<double>(run, how, logits, of_rows, tokens, outcomes, loss, gradient);
  }
  ATOLL_CHECK(logits.dtype() == Dtype::kF32, "logits {}", logits.spec().to_string());
  take_rows<float>(run, how, logits, of_rows, tokens, outcomes, loss, gradient);
}

}  // namespace atl::ops
