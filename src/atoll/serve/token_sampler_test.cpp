#include "atoll/serve/token_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"

namespace atl::serve {
namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, 2.0F, -3.0F};

std::map<int, int> draw(const SamplingOptions& options, int count) {
  TokenSampler sampler(options);
  std::map<int, int> histogram;
  for (int i = 0; i < count; ++i) ++histogram[sampler.next(kLogits, 0, i)];
  return histogram;
}

TEST(TokenSampler, ZeroTemperatureTakesTheMostLikelyAndTheLowerIdOfATie) {
  TokenSampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.next(kLogits, 0, 0), 1);
}

TEST(TokenSampler, FrequenciesFollowTheSoftmax) {
  constexpr int kDraws = 20000;
  const auto histogram = draw({.temperature = 0.8}, kDraws);
  double total = 0;
  for (const float logit : kLogits) total += std::exp(logit / 0.8);
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    const double p = std::exp(kLogits[i] / 0.8) / total;
    const auto found = histogram.find(static_cast<int>(i));
    const double frequency = found == histogram.end() ? 0 : found->second / double{kDraws};
    EXPECT_NEAR(frequency, p, 5 * std::sqrt(p / kDraws) + 1e-4) << i;
  }
}

TEST(TokenSampler, TopKKeepsTheKMostLikely) {
  const auto histogram = draw({.top_k = 3}, 2000);
  EXPECT_EQ(histogram.size(), 3U);
  EXPECT_EQ(histogram.count(0) + histogram.count(4), 0U);
}

TEST(TokenSampler, TopPKeepsTheSmallestSetWithThatProbability) {
  // The two at logit 2 hold 0.79 of the probability: p = 0.5 needs both, p = 0.3 only one.
  EXPECT_EQ(draw({.top_p = 0.5}, 2000).size(), 2U);
  EXPECT_EQ(draw({.top_p = 0.3}, 2000).size(), 1U);
}

// What top-p means, by sorting everything.
std::vector<std::int32_t> nucleus(const std::vector<float>& logits,
                                  const SamplingOptions& options) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  std::vector<double> weights;
  for (const std::int32_t i : order) {
    weights.push_back(std::exp(logits[static_cast<std::size_t>(i)] / options.temperature));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t count = 0;
  for (double sum = 0; count < order.size() && sum < options.top_p * total;) {
    sum += weights[count++];
  }
  order.resize(count);
  return order;
}

TEST(TokenSampler, TopPOfAFlatAndOfASteepDistributionIsThatOfSorting) {
  const RngStream stream(3, RngPurpose::kSynthetic);
  for (const float scale : {0.0F, 0.01F, 1.0F, 30.0F}) {
    std::vector<float> logits(300);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = scale * stream.normal(i);
    for (const double top_p : {0.1, 0.6, 0.95, 0.999999}) {
      const SamplingOptions options = {.temperature = 0.7, .top_p = top_p, .seed = 9};
      const std::vector<std::int32_t> allowed = nucleus(logits, options);
      TokenSampler sampler(options);
      std::set<std::int32_t> drawn;
      for (int i = 0; i < 4000; ++i) drawn.insert(sampler.next(logits, 0, i));
      const std::set<std::int32_t> set(allowed.begin(), allowed.end());
      EXPECT_TRUE(std::includes(set.begin(), set.end(), drawn.begin(), drawn.end()));
      // Each of a set of equals is missed with probability exp(-4000 / 300): 2 in a million.
      if (scale < 0.1F) {
        EXPECT_EQ(drawn, set) << scale << " " << top_p;
      }
    }
  }
}

TEST(TokenSampler, SameSeedSameTokensAndAnotherSeedOthers) {
  EXPECT_EQ(draw({.seed = 4}, 100), draw({.seed = 4}, 100));
  EXPECT_NE(draw({.seed = 4}, 100), draw({.seed = 5}, 100));
}

TEST(TokenSampler, RefusesLogitsThatAreNotNumbers) {
  for (const double temperature : {0.0, 1.0}) {
    TokenSampler sampler({.temperature = temperature, .top_p = 0.9});
    EXPECT_THROW(sampler.next(std::vector<float>{1.0F, std::nanf("")}, 0, 0), Error);
    EXPECT_THROW(sampler.next(std::vector<float>{1.0F, INFINITY}, 0, 0), Error);
    EXPECT_EQ(sampler.next(std::vector<float>{1.0F, -INFINITY}, 0, 0), 0);
  }
}

TEST(TokenSampler, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(TokenSampler({.temperature = -1}), Error);
  EXPECT_THROW(TokenSampler({.temperature = std::nan("")}), Error);
  EXPECT_THROW(TokenSampler({.top_k = -1}), Error);
  EXPECT_THROW(TokenSampler({.top_p = 0}), Error);
  EXPECT_THROW(TokenSampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace atl::serve
