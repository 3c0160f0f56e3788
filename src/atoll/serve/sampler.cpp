#include "atoll/serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/rng.h"

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

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  options.validate();
}

std::int32_t Sampler::next(std::span<const float> logits, std::int64_t sequence,
                           std::int64_t position) {
  ATOLL_CHECK(!logits.empty());
  for (const float logit : logits) {
    // A NaN has no order: neither a sort nor a sum can be trusted behind it.
    if (std::isfinite(logit) || logit == -std::numeric_limits<float>::infinity()) continue;
    throw make_error(ErrorKind::kNumeric,
                     "the model gives a logit of {}; its weights are not finite or not of this "
                     "config.json",
                     logit);
  }
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options_.temperature == 0) return static_cast<std::int32_t>(best - logits.begin());

  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < order_.size()) {
    std::partial_sort(order_.begin(), order_.begin() + options_.top_k, order_.end(), more_likely);
    order_.resize(static_cast<std::size_t>(options_.top_k));
  } else if (options_.top_p < 1) {
    std::sort(order_.begin(), order_.end(), more_likely);
  }

  weights_.resize(order_.size());
  double total = 0;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const double logit = logits[static_cast<std::size_t>(order_[i])];
    weights_[i] = std::exp((logit - *best) / options_.temperature);
    total += weights_[i];
  }
  if (options_.top_p < 1) {
    double sum = 0;
    std::size_t count = 0;
    while (count < weights_.size() && sum < options_.top_p * total) sum += weights_[count++];
    weights_.resize(count);
    total = sum;
  }

  const RngStream stream(options_.seed, RngPurpose::kSampling,
                         static_cast<std::uint64_t>(sequence));
  double left = stream.uniform(static_cast<std::uint64_t>(position)) * total;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) return order_[i];
  }
  // Rounding can leave a crumb beyond the last weight.
  return order_[weights_.size() - 1];
}

}  // namespace atl::serve
