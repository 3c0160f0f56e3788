// Bars over many seeds: some seconds each.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/tune/testing.h"

namespace atl::tune {
namespace {

TEST(SearcherSlow, GpFindsTheMinimumOfHartmann) {
  const Space space = testing::unit_space(6);
  std::vector<double> regrets;
  constexpr std::size_t kSeeds = 5;
  for (std::size_t seed = 0; seed < kSeeds; ++seed) {
    regrets.push_back(testing::search(space, "gp", seed, 100, testing::hartmann6_regret));
  }
  std::sort(regrets.begin(), regrets.end());
  EXPECT_LE(regrets[kSeeds / 2], 0.05);
  EXPECT_LE(regrets[3 * kSeeds / 4], 0.121);  // the second basin's .119
}

}  // namespace
}  // namespace atl::tune
