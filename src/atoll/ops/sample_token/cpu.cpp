#include "atoll/ops/sample_token/cpu.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "atoll/ops/sample_token/cuda_token_weights.h"

namespace atl::ops::cpu {

namespace {

// The largest logit, and whether one is bad. The lanes are what lets the compiler use vectors: a
// token of a small model takes about as long as two plain sweeps over a large vocabulary.
struct Largest {
  float logit = 0;
  bool is_bad = false;
};
Largest largest(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  float best[kLanes];
  int beyond[kLanes] = {};
  std::fill_n(best, kLanes, -std::numeric_limits<float>::infinity());
  const auto take = [&](std::size_t i, std::size_t lane) {
    // A NaN has no order: neither a sort nor a sum can be trusted behind it.
    beyond[lane] |= static_cast<int>(is_bad_logit(logits[i]));
    best[lane] = best[lane] < logits[i] ? logits[i] : best[lane];
  };
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(i + lane, lane);
  }
  for (; i < logits.size(); ++i) take(i, i % kLanes);
  return {*std::max_element(best, best + kLanes),
          std::any_of(beyond, beyond + kLanes, [](int is) { return is != 0; })};
}

// Leaves those ranks that can be in the smallest set with the share of `total`: all tokens lighter
// than half of what is left over, spread evenly, weigh less than that together, so the others hold
// the set. A quarter leaves room for weights that are rounded. Sorting the whole vocabulary would
// take as long as the model.
std::span<std::uint64_t> drop_light(std::span<std::uint64_t> ranks,
                                    std::span<const std::uint64_t> weights, std::uint64_t total,
                                    std::uint64_t share) {
  const double rest = 1 - static_cast<double>(share) / 0x1p32;
  const auto least = static_cast<std::uint64_t>(0.25 * rest * static_cast<double>(total) /
                                                static_cast<double>(weights.size()));
  const auto end = std::remove_if(ranks.begin(), ranks.end(), [&](std::uint64_t rank) {
    return weights[token_of_rank(rank)] < least;
  });
  return {ranks.begin(), end};
}

// Those that may be drawn, in order.
std::span<std::uint64_t> cut(const TokenDraw& draw, std::span<std::uint64_t> ranks,
                             std::span<const std::uint64_t> weights, std::uint64_t& total) {
  const auto sum = [&](std::uint64_t before, std::uint64_t rank) {
    return before + weights[token_of_rank(rank)];
  };
  const bool has_k = draw.top_k > 0 && draw.top_k < std::ssize(ranks);
  if (has_k) {
    const auto k = static_cast<std::size_t>(draw.top_k);
    std::nth_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(k - 1), ranks.end(),
                     std::greater<>());
    ranks = ranks.first(k);
    total = std::accumulate(ranks.begin(), ranks.end(), std::uint64_t{0}, sum);
  } else {
    ranks = drop_light(ranks, weights, total, draw.share);
  }
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  if (draw.share == TokenDraw::kAll) return ranks;
  const std::uint64_t least = least_share(total, draw.share);
  std::uint64_t kept = 0;
  std::size_t count = 0;
  while (kept < least) kept += weights[token_of_rank(ranks[count++])];
  total = kept;
  return ranks.first(count);
}

}  // namespace

DrawnToken sample_token(const TokenDraw& draw, std::span<const float> logits,
                        std::span<std::uint64_t> ranks, std::span<std::uint64_t> weights) {
  const Largest best = largest(logits);
  if (best.is_bad) return {-1, *std::find_if(logits.begin(), logits.end(), is_bad_logit)};
  if (draw.temperature == 0 || std::isinf(best.logit)) {
    const auto first = std::find(logits.begin(), logits.end(), best.logit);
    return {static_cast<std::int32_t>(first - logits.begin()), 0};
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights[i] = token_weight((logits[i] - best.logit) / draw.temperature);
    total += weights[i];
  }
  if (!draw.is_cut(std::ssize(logits))) {
    std::uint64_t left = drawn_below(draw.random, total);
    std::size_t i = 0;
    while (left >= weights[i]) left -= weights[i++];
    return {static_cast<std::int32_t>(i), 0};
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    ranks[i] = token_rank(logits[i], static_cast<std::uint32_t>(i));
  }
  const std::span<const std::uint64_t> kept = cut(draw, ranks, weights, total);
  std::uint64_t left = drawn_below(draw.random, total);
  std::size_t i = 0;
  while (left >= weights[token_of_rank(kept[i])]) left -= weights[token_of_rank(kept[i++])];
  return {static_cast<std::int32_t>(token_of_rank(kept[i])), 0};
}

}  // namespace atl::ops::cpu
