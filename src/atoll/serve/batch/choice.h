#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "atoll/serve/batch/request.h"

namespace atl::serve {

/// Room for one choice, so that several threads may choose at a time.
struct ChoiceRoom {
  std::vector<float> logits;
  std::vector<std::uint64_t> ranks, weights;  ///< see ops::cpu::sample_token
  std::vector<std::uint64_t> allowed;
};

/// How often each token of a sequence was generated; the prompt's are there too, with 0.
using TokenCounts = std::unordered_map<std::int32_t, std::int64_t>;

/// What a choice depends on beside the logits and the position. All of it outlives the choice.
struct ChoiceInput {
  const GenerationRequest* request = nullptr;
  const TokenSampler* sampler = nullptr;
  const TokenCounts* counts = nullptr;
};

/// Whether the token that follows depends on more than the logits and its position.
bool changes_logits(const GenerationRequest& request);

/// The token that comes at `position` of a sequence, given the model's logits (V) there, of which
/// the first `vocab_size` may be generated; with its log-probability where the request asks. Where
/// changes_logits(), `position` must be the sequence's end. The token is -1 where the request's
/// constraint allows none. Throws Error(kNumeric) for logits that are not finite.
TokenResult choose_token(const ChoiceInput& input, std::span<const float> logits,
                         std::int64_t position, std::int64_t vocab_size, ChoiceRoom& room);

/// The log-probability of `token` under these logits (V), with those of the `top` likeliest tokens.
TokenResult token_result(std::span<const float> logits, std::int32_t token, int top);

}  // namespace atl::serve
