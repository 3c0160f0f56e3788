#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/serve/batch/sequence.h"

namespace atl::serve {

/// Room for one choice, so that several threads may choose at a time.
struct ChoiceRoom {
  std::vector<float> logits;
  std::vector<std::uint64_t> ranks, weights;  ///< see ops::cpu::sample_token
  std::vector<std::uint64_t> allowed;
};

/// Whether the token that follows depends on more than the logits and its position.
bool changes_logits(const GenerationRequest& request);

/// The token that comes at `position` of a sequence, given the model's logits (V) there, of which
/// the first `vocab_size` may be generated; with its log-probability where the request asks. Where
/// changes_logits(), `position` is the sequence's end. The token is -1 where the request's
/// constraint allows none. Throws Error(kNumeric) for logits that are not finite.
TokenResult choose_token(const Sequence& sequence, std::span<const float> logits,
                         std::int64_t position, std::int64_t vocab_size, ChoiceRoom& room);

/// The log-probability of `token` under these logits (V), with those of the `top` likeliest tokens.
TokenResult token_result(std::span<const float> logits, std::int32_t token, int top);

}  // namespace atl::serve
