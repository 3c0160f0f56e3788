// Bars over many seeds: some seconds each.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/tune/trial/surface.h"

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

// Real runs, looked up: trials until within half a percent of the best of 180. The medians that
// bench/results has are of 200 seeds.
TEST(SearcherSlow, ModelsFindTheBestOfRealRunsInFewerTrials) {
  const testing::Surface surface;
  const auto median = [&](const char* searcher, bool diverges) {
    constexpr int kSeeds = 21;
    std::vector<int> trials;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      trials.push_back(surface.trials_to(0.005, searcher, seed, [&](const Units& units) {
        return diverges && testing::diverges_on_surface(surface, units)
                   ? std::numeric_limits<double>::quiet_NaN()
                   : surface.loss(units);
      }));
    }
    std::sort(trials.begin(), trials.end());
    return trials[kSeeds / 2];
  };
  const int random = median("random", false);
  const int gp = median("gp", false);
  EXPECT_LE(gp, 0.5 * random);
  EXPECT_LE(median("tpe", false), 0.7 * random);
  EXPECT_LE(median("gp", true), 1.2 * gp);
}

}  // namespace
}  // namespace atl::tune
