#pragma once

// The next token, drawn from logits.

#include <cstdint>
#include <limits>

#include "atoll/ops/run.h"

namespace atl::ops {

/// How one token is drawn. Tokens are ordered by their logits, the likeliest first, equals by their
/// ids.
struct TokenDraw {
  float temperature = 1;       ///< divides the logits; 0: the first token of the order
  std::int64_t top_k = 0;      ///< only the first k; 0: all
  std::uint64_t share = kAll;  ///< only the first with a share of `share` / 2^32 of the weight
  std::uint64_t random = 0;    ///< uniform bits
  static constexpr std::uint64_t kAll = std::uint64_t{1} << 32;

  /// Whether only some of the tokens may be drawn.
  bool is_cut(std::int64_t num_tokens) const {
    return (top_k > 0 && top_k < num_tokens) || share < kAll;
  }
};

/// More tokens than there may be: their weights then sum up to less than 2^63.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 22;

/// What was drawn.
struct DrawnToken {
  std::int32_t token = -1;  ///< -1: none, as a logit is NaN or +infinity
  float logit = 0;          ///< the first such logit
};

/// result = the token that is drawn from `logits` f32 (V), V < kMaxTokens, and the bits of a logit
/// that is bad: i32 (2), as in DrawnToken. A token of weight w = floor(2^40 exp((logit - largest) /
/// temperature)) is drawn with probability w / (sum of w): where tokens are cut off, by the sum of
/// what is left in the order, else by the sum of ids up to its own. All devices give the same token
/// (docs/decisions/0075-a-token-is-drawn-among-whole-numbers.md). Needs sample_token_scratch_bytes
/// of scratch.
void sample_token(Run& run, const TokenDraw& draw, Tensor logits, Tensor result);
std::size_t sample_token_scratch_bytes(std::int64_t num_tokens);

}  // namespace atl::ops
