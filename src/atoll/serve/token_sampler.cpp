#include "atoll/serve/token_sampler.h"

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

namespace {

// The largest logit. The lanes are what lets the compiler use vectors: a single token of a small
// model takes about as long as two plain sweeps over a large vocabulary.
float largest(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  constexpr float kMost = std::numeric_limits<float>::max();
  float best[kLanes];
  int beyond[kLanes] = {};
  std::fill_n(best, kLanes, -std::numeric_limits<float>::infinity());
  const auto take = [&](std::size_t i, std::size_t lane) {
    // A NaN has no order: neither a sort nor a sum can be trusted behind it.
    beyond[lane] |= static_cast<int>(!(logits[i] <= kMost));
    best[lane] = best[lane] < logits[i] ? logits[i] : best[lane];
  };
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(i + lane, lane);
  }
  for (; i < logits.size(); ++i) take(i, i % kLanes);
  if (std::any_of(beyond, beyond + kLanes, [](int is) { return is != 0; })) {
    const auto bad =
        std::find_if(logits.begin(), logits.end(), [](float x) { return !(x <= kMost); });
    throw make_error(ErrorKind::kNumeric,
                     "the model gives a logit of {}; its weights are not finite or not of this "
                     "config.json",
                     *bad);
  }
  return *std::max_element(best, best + kLanes);
}

}  // namespace

TokenSampler::TokenSampler(const SamplingOptions& options) : options_(options) {
  options.validate();
}

// All tokens with their weights, exp((logit - best) / temperature), in order of ids.
double TokenSampler::weigh_all(std::span<const float> logits, double best) {
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  weights_.resize(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights_[i] = std::exp((logits[i] - best) / options_.temperature);
    total += weights_[i];
  }
  return total;
}

// Leaves only what can be in the smallest set with a share top_p of `total`: all tokens lighter
// than a share 1 - top_p of the mean weigh less than 1 - top_p together, so the others hold the
// set. Sorting the whole vocabulary took as long as the model.
void TokenSampler::drop_light(double total) {
  const double least = 0.5 * (1 - options_.top_p) * total / static_cast<double>(weights_.size());
  std::erase_if(order_,
                [&](std::int32_t i) { return weights_[static_cast<std::size_t>(i)] < least; });
}

std::int32_t TokenSampler::next(std::span<const float> logits, std::int64_t sequence,
                                std::int64_t position) {
  ATOLL_CHECK(!logits.empty());
  const float best = largest(logits);
  if (options_.temperature == 0) {
    const auto first = std::find(logits.begin(), logits.end(), best);
    return static_cast<std::int32_t>(first - logits.begin());
  }

  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  double total = weigh_all(logits, best);
  const bool some = options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < order_.size();
  if (some) {
    std::partial_sort(order_.begin(), order_.begin() + options_.top_k, order_.end(), more_likely);
    order_.resize(static_cast<std::size_t>(options_.top_k));
  } else if (options_.top_p < 1) {
    drop_light(total);
    std::sort(order_.begin(), order_.end(), more_likely);
  }
  if (some || options_.top_p < 1) {
    kept_.resize(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) {
      kept_[i] = weights_[static_cast<std::size_t>(order_[i])];
    }
    std::swap(kept_, weights_);
  }
  if (some) total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
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
