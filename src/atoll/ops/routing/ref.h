#pragma once

// The router as ops/routing/routing.h defines it, row by row, in any float type. T is the compute
// type.

#include <cmath>
#include <cstdint>

namespace atl::ops::ref {

/// max logits and log sum exp logits of one row.
template <typename T>
struct LogSum {
  T max;
  T log_sum;
};

template <typename T>
LogSum<T> log_sum_exp(const T* logits, std::int64_t num_experts) {
  T max = logits[0];
  for (std::int64_t e = 1; e < num_experts; ++e) max = logits[e] > max ? logits[e] : max;
  T sum = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) sum += std::exp(logits[e] - max);
  return {max, max + std::log(sum)};
}

/// The experts of the top_k largest logits, largest first. With NaN among them: some experts, each
/// once; the step is then refused for its loss.
template <typename T>
void top_k(const T* logits, std::int64_t num_experts, std::int64_t k, std::int32_t* experts) {
  for (std::int64_t j = 0; j < k; ++j) {
    const auto is_taken = [&](std::int64_t e) {
      for (std::int64_t i = 0; i < j; ++i) {
        if (experts[i] == e) return true;
      }
      return false;
    };
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      if (best >= 0 && !(logits[e] > logits[best])) continue;
      if (!is_taken(e)) best = e;
    }
    experts[j] = static_cast<std::int32_t>(best);
  }
}

template <typename T>
void route_token(bool normalize, const T* logits, std::int64_t num_experts, std::int64_t k,
                 std::int32_t* experts, T* weights) {
  top_k(logits, num_experts, k, experts);
  const T log_sum = log_sum_exp(logits, num_experts).log_sum;
  // Over the chosen alone, a softmax of their logits: what dividing by their sum comes to.
  T scale = log_sum;
  if (normalize) {
    T sum = 0;
    for (std::int64_t j = 0; j < k; ++j) sum += std::exp(logits[experts[j]] - logits[experts[0]]);
    scale = logits[experts[0]] + std::log(sum);
  }
  for (std::int64_t j = 0; j < k; ++j) weights[j] = std::exp(logits[experts[j]] - scale);
}

/// dlogits of one token. `balance`: d(step loss)/d(probability) of each expert, from the
/// load-balance loss; null: none. `z`: RouterLosses::z.
template <typename T>
void route_token_backward(bool normalize, const T* balance, T z, const T* logits,
                          std::int64_t num_experts, const std::int32_t* experts, const T* weights,
                          const T* dweights, std::int64_t k, T* dlogits) {
  const T log_sum = log_sum_exp(logits, num_experts).log_sum;
  // The losses see every probability p: dlogit = p (b - sum p b) + 2 z log_sum p.
  T mean = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    dlogits[e] = std::exp(logits[e] - log_sum);
    if (balance != nullptr) mean += dlogits[e] * balance[e];
  }
  // sum w dw. Weights that are not divided by their sum are probabilities among all the others.
  T weighted = 0;
  for (std::int64_t j = 0; j < k; ++j) weighted += weights[j] * dweights[j];
  const T of_all = 2 * z * log_sum - mean - (normalize ? T{0} : weighted);
  for (std::int64_t e = 0; e < num_experts; ++e) {
    dlogits[e] *= of_all + (balance == nullptr ? T{0} : balance[e]);
  }
  for (std::int64_t j = 0; j < k; ++j) {
    dlogits[experts[j]] += weights[j] * (dweights[j] - (normalize ? weighted : T{0}));
  }
}

}  // namespace atl::ops::ref
