#pragma once

// The router as ops/routing/scored_routing.h defines it, row by row, in any float type. T is the
// compute type.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "atoll/ops/routing/ref.h"
#include "atoll/ops/routing/router_form.h"

namespace atl::ops::ref {

/// scores[e] of all logits.
template <typename T>
void router_scores(bool sigmoid, std::span<const T> logits, std::span<T> scores) {
  const auto E = static_cast<std::int64_t>(logits.size());
  const T log_sum = sigmoid ? T{0} : log_sum_exp(logits.data(), E).log_sum;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    scores[e] = sigmoid ? T{1} / (T{1} + std::exp(-logits[e])) : std::exp(logits[e] - log_sum);
  }
}

/// Puts -infinity in the place of the numbers of all groups but the best.
template <typename T>
void keep_best_groups(const RouterForm& form, std::span<T> choices) {
  constexpr T kNever = -std::numeric_limits<T>::infinity();
  const auto groups = static_cast<std::size_t>(form.num_groups);
  const std::size_t size = choices.size() / groups;
  const auto score = [&](std::size_t group) {
    const std::span<const T> own = choices.subspan(group * size, size);
    std::int32_t best[2];
    const std::int64_t count = std::min<std::int64_t>(form.best_of_group, std::ssize(own));
    top_k(own.data(), std::ssize(own), count, best);
    T sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += own[static_cast<std::size_t>(best[i])];
    return sum;
  };
  // A group stays where fewer than top_groups are better; of equal ones the first are.
  std::vector<T> scores(groups);
  for (std::size_t g = 0; g < groups; ++g) scores[g] = score(g);
  std::vector<std::int32_t> kept(static_cast<std::size_t>(form.top_groups));
  top_k(scores.data(), form.num_groups, form.top_groups, kept.data());
  for (std::size_t g = 0; g < groups; ++g) {
    if (std::find(kept.begin(), kept.end(), static_cast<std::int32_t>(g)) != kept.end()) continue;
    std::fill_n(choices.begin() + static_cast<std::ptrdiff_t>(g * size), size, kNever);
  }
}

/// `scores`, `choices`: room for a number of each expert. `correction` may be empty.
template <typename T>
void route_scored_token(const RouterForm& form, std::span<const T> logits,
                        std::span<const T> correction, std::span<std::int32_t> experts,
                        std::span<T> weights, std::span<T> scores, std::span<T> choices) {
  router_scores(form.sigmoid, logits, scores);
  for (std::size_t e = 0; e < scores.size(); ++e) {
    choices[e] = scores[e] + (correction.empty() ? T{0} : correction[e]);
  }
  if (form.has_groups()) keep_best_groups(form, choices);
  top_k(choices.data(), std::ssize(choices), std::ssize(experts), experts.data());
  T sum = 0;
  for (const std::int32_t e : experts) sum += scores[static_cast<std::size_t>(e)];
  const T factor = static_cast<T>(form.scale) / (form.normalize ? sum : T{1});
  for (std::size_t j = 0; j < experts.size(); ++j) {
    weights[j] = factor * scores[static_cast<std::size_t>(experts[j])];
  }
}

/// dlogits of one token; `balance` and `z` as in route_token_backward, an empty span for no
/// `balance`. `scores` and `dscores`: room for a number of each expert.
template <typename T>
void route_scored_token_backward(const RouterForm& form, std::span<const T> balance, T z,
                                 std::span<const T> logits, std::span<const std::int32_t> experts,
                                 std::span<const T> weights, std::span<const T> dweights,
                                 std::span<T> dlogits, std::span<T> scores, std::span<T> dscores) {
  router_scores(form.sigmoid, logits, scores);
  T of_chosen = 0, weighted = 0, total = 0, mean = 0;
  for (std::size_t j = 0; j < experts.size(); ++j) {
    of_chosen += scores[static_cast<std::size_t>(experts[j])];
    weighted += weights[j] * dweights[j];
  }
  // Shares of a token, which the load-balance loss sees: softmax scores sum to 1 as they are.
  for (std::size_t e = 0; e < scores.size(); ++e) {
    total += scores[e];
    if (!balance.empty()) mean += scores[e] * balance[e];
  }
  mean /= total;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    dscores[e] = balance.empty() ? T{0} : (balance[e] - mean) / total;
  }
  for (std::size_t j = 0; j < experts.size(); ++j) {
    const T direct = static_cast<T>(form.scale) * dweights[j];
    dscores[static_cast<std::size_t>(experts[j])] +=
        form.normalize ? (direct - weighted) / of_chosen : direct;
  }
  T along = 0;  // a softmax does not see what all logits have in common
  for (std::size_t e = 0; e < scores.size(); ++e) along += scores[e] * dscores[e];
  const T log_sum = z == 0 ? T{0} : log_sum_exp(logits.data(), std::ssize(logits)).log_sum;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    const T slope = form.sigmoid ? dscores[e] * (T{1} - scores[e]) : dscores[e] - along;
    dlogits[e] = scores[e] * slope;
    if (z != 0) dlogits[e] += 2 * z * log_sum * std::exp(logits[e] - log_sum);
  }
}

}  // namespace atl::ops::ref
