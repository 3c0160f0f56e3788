#pragma once

// The reference of drawing a token: everything is sorted and summed.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "atoll/ops/sample_token/cuda_token_weights.h"
#include "atoll/ops/sample_token/sample_token.h"

namespace atl::ops::ref {

inline DrawnToken sample_token(const TokenDraw& draw, std::span<const float> logits) {
  std::vector<std::uint64_t> ranks;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (is_bad_logit(logits[i])) return {-1, logits[i]};
    ranks.push_back(token_rank(logits[i], static_cast<std::uint32_t>(i)));
  }
  const std::uint64_t best = *std::max_element(ranks.begin(), ranks.end());
  const auto token = [](std::uint64_t rank) {
    return static_cast<std::int32_t>(token_of_rank(rank));
  };
  if (draw.temperature == 0 || std::isinf(logit_of_rank(best))) return {token(best), 0};
  if (draw.is_cut(std::ssize(logits))) std::sort(ranks.begin(), ranks.end(), std::greater<>());
  if (draw.top_k > 0 && draw.top_k < std::ssize(ranks)) {
    ranks.resize(static_cast<std::size_t>(draw.top_k));
  }
  std::vector<std::uint64_t> sums;  // of weights up to each
  std::uint64_t total = 0;
  for (const std::uint64_t rank : ranks) {
    total += token_weight((logit_of_rank(rank) - logit_of_rank(best)) / draw.temperature);
    sums.push_back(total);
  }
  if (draw.share < TokenDraw::kAll) {
    total = *std::lower_bound(sums.begin(), sums.end(), least_share(total, draw.share));
  }
  const auto drawn =
      std::upper_bound(sums.begin(), sums.end(), drawn_below(draw.random, total)) - sums.begin();
  return {token(ranks[static_cast<std::size_t>(drawn)]), 0};
}

}  // namespace atl::ops::ref
