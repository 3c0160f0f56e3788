#include "atoll/serve/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, 2.0F, -3.0F};

std::map<int, int> draw(const SamplingOptions& options, int count) {
  Sampler sampler(options);
  std::map<int, int> histogram;
  for (int i = 0; i < count; ++i) ++histogram[sampler.next(kLogits, 0, i)];
  return histogram;
}

TEST(Sampler, ZeroTemperatureTakesTheMostLikelyAndTheLowerIdOfATie) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.next(kLogits, 0, 0), 1);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
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

TEST(Sampler, TopKKeepsTheKMostLikely) {
  const auto histogram = draw({.top_k = 3}, 2000);
  EXPECT_EQ(histogram.size(), 3U);
  EXPECT_EQ(histogram.count(0) + histogram.count(4), 0U);
}

TEST(Sampler, TopPKeepsTheSmallestSetWithThatProbability) {
  // The two at logit 2 hold 0.79 of the probability: p = 0.5 needs both, p = 0.3 only one.
  EXPECT_EQ(draw({.top_p = 0.5}, 2000).size(), 2U);
  EXPECT_EQ(draw({.top_p = 0.3}, 2000).size(), 1U);
}

TEST(Sampler, SameSeedSameTokensAndAnotherSeedOthers) {
  EXPECT_EQ(draw({.seed = 4}, 100), draw({.seed = 4}, 100));
  EXPECT_NE(draw({.seed = 4}, 100), draw({.seed = 5}, 100));
}

TEST(Sampler, RefusesLogitsThatAreNotNumbers) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature, .top_p = 0.9});
    EXPECT_THROW(sampler.next(std::vector<float>{1.0F, std::nanf("")}, 0, 0), Error);
    EXPECT_THROW(sampler.next(std::vector<float>{1.0F, INFINITY}, 0, 0), Error);
    EXPECT_EQ(sampler.next(std::vector<float>{1.0F, -INFINITY}, 0, 0), 0);
  }
}

TEST(Sampler, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.temperature = std::nan("")}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace atl::serve
