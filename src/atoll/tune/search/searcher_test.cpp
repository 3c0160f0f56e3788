#include "atoll/tune/search/searcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/tune/trial/testing.h"

namespace atl::tune {
namespace {

using testing::branin_regret;
using testing::search;
using testing::unit_space;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The regrets of so many seeds after 30 trials on Branin.
double median_on_branin(const std::string& searcher, int seeds, int workers = 1) {
  const Space space = unit_space(2);
  std::vector<double> regrets;
  for (int seed = 0; seed < seeds; ++seed) {
    regrets.push_back(
        search(space, searcher, static_cast<std::uint64_t>(seed), 30, branin_regret, workers));
  }
  return median(regrets);
}

TEST(QuasiRandom, FillsEveryCell) {
  const QuasiRandom points(7, 4);
  for (std::size_t d = 0; d < 4; ++d) {
    constexpr std::size_t kBases[] = {2, 3, 5, 7};
    const std::size_t cells = kBases[d] * kBases[d];
    std::vector<int> counts(cells);
    for (std::uint64_t i = 0; i < cells; ++i) {
      ++counts[static_cast<std::size_t>(points.point(i)[d] * static_cast<double>(cells))];
    }
    EXPECT_THAT(counts, ::testing::Each(1)) << "dimension " << d;
  }
  EXPECT_EQ(points.point(5), QuasiRandom(7, 4).point(5));
  EXPECT_NE(points.point(5), QuasiRandom(8, 4).point(5));
}

// Of 20,000 seeds: median 1.17, quartiles .49 and 2.35 (tuning bars of the design).
TEST(Searcher, RandomHasTheRegretThatWasComputed) {
  const double regret = median_on_branin("random", 400);
  EXPECT_GT(regret, 0.9);
  EXPECT_LT(regret, 1.45);
}

TEST(Searcher, GpFindsTheMinimumOfBranin) {
  EXPECT_LT(median_on_branin("gp", 10), 0.01);
}

TEST(Searcher, GpOfFourWorkersFindsItToo) {
  EXPECT_LT(median_on_branin("gp", 10, 4), 0.05);
}

TEST(Searcher, TpeIsBetterThanRandom) {
  EXPECT_LT(median_on_branin("tpe", 40), 0.7 * median_on_branin("random", 100));
}

// A valley that is turned and ten times as long as wide; random search ends at about 0.03.
TEST(Searcher, CmaEsLearnsAValley) {
  const Space space = unit_space(4);
  const auto valley = [](const Units& u) {
    const double along = u[0] + u[1] - 1.3, across = u[0] - u[1] + 0.1;
    return along * along + 100 * across * across + (u[2] - .2) * (u[2] - .2) +
           (u[3] - .7) * (u[3] - .7);
  };
  std::vector<double> found;
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    found.push_back(search(space, "cma-es", seed, 400, valley));
  }
  EXPECT_LT(median(found), 1e-3);
}

// A space of words, lists and a condition: the best is one of 3 x 4 x 2 combinations.
TEST(Searcher, ModelsKnowWordsAndConditions) {
  std::vector<Dimension> dimensions = {
      {.key = "kind", .kind = Dimension::Kind::kCategory, .choices = {"a", "b", "c"}},
      {.key = "batch",
       .kind = Dimension::Kind::kOrdered,
       .choices = {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{8}}},
      {.key = "x", .parent = 0, .when = {"\"b\""}},
      {.key = "flag", .kind = Dimension::Kind::kCategory, .choices = {false, true}}};
  const Space space(dimensions);
  const auto function = [&](const Units& units) {
    double sum = units[0] > 0.34 && units[0] < 0.66 ? 0 : 0.5;  // "b" is best
    sum += std::abs(units[1] - 0.625);
    sum += space.is_active(2, units) ? (units[2] - 0.2) * (units[2] - 0.2) : 0.3;
    return sum + (units[3] > 0.5 ? 0 : 0.2);
  };
  const auto found_by = [&](const char* searcher, int seeds) {
    std::vector<double> found;
    for (int seed = 0; seed < seeds; ++seed) {
      found.push_back(search(space, searcher, static_cast<std::uint64_t>(seed), 40, function));
    }
    return median(found);
  };
  EXPECT_LT(found_by("gp", 5), 0.005);
  EXPECT_LT(found_by("tpe", 15), found_by("random", 15));
}

}  // namespace
}  // namespace atl::tune
