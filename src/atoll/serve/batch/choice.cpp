#include "atoll/serve/batch/choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/ops/sample_token/cpu.h"
#include "atoll/serve/head_logits.h"

namespace atl::serve {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void add_penalties(const ChoiceInput& input, std::span<float> logits) {
  const LogitChanges& c = input.request->changes;
  const bool repeats = c.repetition_penalty != 1;
  if (!repeats && c.presence_penalty == 0 && c.frequency_penalty == 0) return;
  for (const auto& [token, times] : *input.counts) {
    if (static_cast<std::size_t>(token) >= logits.size()) continue;
    float& logit = logits[static_cast<std::size_t>(token)];
    if (repeats) {
      const auto penalty = static_cast<float>(c.repetition_penalty);
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
    if (times == 0) continue;
    logit -=
        static_cast<float>(c.presence_penalty + c.frequency_penalty * static_cast<double>(times));
  }
}

// False: there is nothing that may come.
bool keep_allowed(TokenConstraint& constraint, std::vector<std::uint64_t>& allowed,
                  std::span<float> logits) {
  allowed.assign((logits.size() + 63) / 64, ~std::uint64_t{0});
  constraint.mask(allowed);
  bool any = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if ((allowed[i / 64] >> (i % 64) & 1) == 0) {
      logits[i] = kNever;
    } else {
      any = true;
    }
  }
  return any;
}

// As others do it, after the temperature has divided the logits.
void keep_likely(double min_p, double temperature, std::span<float> logits) {
  if (min_p <= 0 || temperature == 0) return;
  const float largest = *std::ranges::max_element(logits);
  const auto least = static_cast<float>(largest + temperature * std::log(min_p));
  for (float& logit : logits) {
    if (logit < least) logit = kNever;
  }
}

// Applies what the request wants to room.logits; false: nothing may come.
bool change_logits(const ChoiceInput& input, ChoiceRoom& room) {
  const GenerationRequest& request = *input.request;
  add_penalties(input, room.logits);
  for (const auto& [token, bias] : request.changes.bias) {
    const auto at = static_cast<std::size_t>(token);
    if (at < room.logits.size()) room.logits[at] += static_cast<float>(bias);
  }
  if (request.constraint != nullptr &&
      !keep_allowed(*request.constraint, room.allowed, room.logits)) {
    return false;
  }
  keep_likely(request.changes.min_p, request.sampling.temperature, room.logits);
  return true;
}

}  // namespace

void LogitChanges::validate() const {
  if (!(min_p >= 0 && min_p <= 1)) throw user_error("min_p must be from 0 to 1, not {}", min_p);
  if (!(repetition_penalty >= kMinRepetition) || std::isinf(repetition_penalty)) {
    throw user_error("repetition_penalty must be {} or more, not {}", kMinRepetition,
                     repetition_penalty);
  }
  if (!std::isfinite(presence_penalty) || !std::isfinite(frequency_penalty)) {
    throw user_error("presence_penalty and frequency_penalty must be numbers");
  }
  for (const auto& [token, added] : bias) {
    if (std::isnan(added)) throw user_error("the bias of token {} is no number", token);
  }
}

bool changes_logits(const GenerationRequest& request) {
  const LogitChanges& c = request.changes;
  return request.constraint != nullptr || c.min_p > 0 || c.presence_penalty != 0 ||
         c.frequency_penalty != 0 || c.repetition_penalty != 1 || !c.bias.empty();
}

TokenResult token_result(std::span<const float> logits, std::int32_t token, int top) {
  const auto vocab_size = static_cast<std::int64_t>(logits.size());
  TokenResult result = {.token = token,
                        .logprob = log_probability(logits.data(), vocab_size, token)};
  if (top <= 0) return result;
  // The same constant lies between a token's logit and its log-probability for all of them.
  const double shift =
      result.logprob - static_cast<double>(logits[static_cast<std::size_t>(token)]);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(top), order.size());
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float of_a = logits[static_cast<std::size_t>(a)];
    const float of_b = logits[static_cast<std::size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    likelier);
  for (std::size_t i = 0; i < count; ++i) {
    result.top.emplace_back(
        order[i], static_cast<double>(logits[static_cast<std::size_t>(order[i])]) + shift);
  }
  return result;
}

TokenResult choose_token(const ChoiceInput& input, std::span<const float> logits,
                         std::int64_t position, std::int64_t vocab_size, ChoiceRoom& room) {
  const GenerationRequest& request = *input.request;
  std::span<const float> from = logits.first(static_cast<std::size_t>(vocab_size));
  if (changes_logits(request)) {
    room.logits.assign(from.begin(), from.end());
    if (!change_logits(input, room)) return {};
    from = room.logits;
  }
  room.ranks.resize(from.size());
  room.weights.resize(from.size());
  const ops::TokenDraw draw = input.sampler->draw(request.sequence, position);
  const std::int32_t token =
      TokenSampler::checked(ops::cpu::sample_token(draw, from, room.ranks, room.weights));
  if (request.top_logprobs < 0) return {.token = token};
  return token_result(logits, token, request.top_logprobs);
}

}  // namespace atl::serve
