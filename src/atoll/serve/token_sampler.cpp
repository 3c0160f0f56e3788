#include "atoll/serve/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/rng.h"
#include "atoll/ops/sample_token/cpu.h"

namespace atl::serve {

void SamplingOptions::validate() const {
  if (!(temperature >= 0) || std::isinf(temperature)) {
    throw user_error("temperature must be 0 (greedy) or more, not {}", temperature);
  }
  if (top_k < 0) throw user_error("top-k must be 0 (all tokens) or more, not {}", top_k);
  if (!(top_p > 0 && top_p <= 1)) {
    throw user_error("top-p must be above 0 and at most 1, not {}", top_p);
  }
}

TokenSampler::TokenSampler(const SamplingOptions& options) : options_(options) {
  options.validate();
}

ops::TokenDraw TokenSampler::draw(std::int64_t sequence, std::int64_t position) const {
  using Limits = std::numeric_limits<float>;
  constexpr std::uint64_t kLowWords = std::uint64_t{1} << 62;  // no text has so many tokens
  ops::TokenDraw draw = {.temperature = 0, .top_k = options_.top_k};
  if (options_.temperature == 0) return draw;
  draw.temperature =
      static_cast<float>(std::clamp<double>(options_.temperature, Limits::min(), Limits::max()));
  if (options_.top_p < 1) {
    // Rounded down: of ten tokens that are as likely, a share of 0.1 is one.
    const auto share = static_cast<std::uint64_t>(options_.top_p * 0x1p32);
    draw.share = std::max<std::uint64_t>(share, 1);
  }
  const RngStream stream(options_.seed, RngPurpose::kSampling,
                         static_cast<std::uint64_t>(sequence));
  const auto at = static_cast<std::uint64_t>(position);
  draw.random = std::uint64_t{stream.word(at)} << 32 | stream.word(at + kLowWords);
  return draw;
}

std::int32_t TokenSampler::checked(const ops::DrawnToken& drawn) {
  if (drawn.token >= 0) return drawn.token;
  throw make_error(ErrorKind::kNumeric,
                   "the model gives a logit of {}; its weights are not finite or not of this "
                   "config.json",
                   drawn.logit);
}

std::int32_t TokenSampler::next(std::span<const float> logits, std::int64_t sequence,
                                std::int64_t position) {
  ATOLL_CHECK(!logits.empty());
  ranks_.resize(logits.size());
  weights_.resize(logits.size());
  return checked(ops::cpu::sample_token(draw(sequence, position), logits, ranks_, weights_));
}

}  // namespace atl::serve
