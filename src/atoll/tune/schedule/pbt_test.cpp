// Population Based Training: who takes over from whom, and with which settings.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/tune/schedule/schedulers.h"
#include "atoll/tune/trial/testing.h"

namespace atl::tune {
namespace {

using testing::branin_regret;
using testing::problem_on;
using testing::unit_space;

// What a trial shows: better with more steps, the same for the same point.
double shown(const Trial& trial, std::int64_t step) {
  return branin_regret(trial.units) + 40.0 / static_cast<double>(step);
}

// A learning rate that should follow time: each step brings the value down by what is between the
// rate and 0.9 - 0.8 t, so that the best settings of one interval are not those of the next.
double with_moving_optimum(const Trial& trial, std::int64_t from, std::int64_t to, double value) {
  for (std::int64_t step = from; step < to; ++step) {
    const double t = static_cast<double>(step) / 60;
    const double off = trial.units[0] - (0.9 - 0.8 * t);
    value -= 1 - std::min(1.0, 12 * off * off) - 0.2 * std::abs(trial.units[1] - 0.3);
  }
  return value;
}

double best_of_population(const Space& space, const char* explore, std::uint64_t seed) {
  Problem problem = problem_on(space, "random", seed, 0);
  problem.scheduler = "pbt";
  problem.explore = explore;
  problem.rules = {.seed = seed, .max_steps = 60, .population = 4, .interval = 6};
  std::map<int, double> values;
  const auto train = [&](const Trial& trial, std::int64_t step) {
    if (trial.measured.empty() && trial.parent >= 0) values[trial.number] = values[trial.parent];
    double& value = values[trial.number];
    value = with_moving_optimum(trial, trial.reached(), step, value);
    return std::vector<double>{value};
  };
  const SimulatedOutcome outcome = simulate_study(problem, {.train = train, .seconds = {}});
  return testing::least(outcome.history);
}

// On average over seeds: of these it is better in 35 only, where chance does badly.
TEST(Pbt, ABanditFollowsAnOptimumThatMovesBetterThanChanceOnAverage) {
  const Space space = unit_space(2);
  constexpr int kSeeds = 60;
  double bandit = 0, chance = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    bandit += best_of_population(space, "pb2", seed) / kSeeds;
    chance += best_of_population(space, "perturb", seed) / kSeeds;
  }
  EXPECT_LT(bandit, chance);
}

TEST(Pbt, ABanditStaysWithinTheSpaceWhateverFails) {
  const std::vector<Dimension> dimensions = {
      {.key = "lr", .low = 1e-4, .high = 1e-2, .log = true},
      {.key = "n", .kind = Dimension::Kind::kInteger, .low = 1, .high = 4},
      {.key = "c", .kind = Dimension::Kind::kCategory, .choices = {"a", "b"}}};
  const Space space(dimensions);
  Problem problem = problem_on(space, "random", 3, 0);
  problem.scheduler = "pbt";
  problem.explore = "pb2";
  problem.rules = {.seed = 3, .max_steps = 60, .population = 5, .interval = 6};
  const SimulatedOutcome outcome = simulate_study(
      problem, {.train =
                    [](const Trial& trial, std::int64_t step) {
                      const bool diverges = trial.units[0] > 0.8;
                      return std::vector<double>{diverges ? NAN : shown(trial, step)};
                    },
                .seconds = {}});
  int forks = 0;
  for (const Trial& trial : outcome.history.trials()) {
    forks += trial.parent >= 0 ? 1 : 0;
    EXPECT_EQ(trial.units, space.canonical(trial.units));
  }
  EXPECT_GT(forks, 8);
}

// The toy of the PBT paper: weights θ climb h₀ θ₀² + h₁ θ₁² downhill, what counts is θ₀² + θ₁².
class PbtToy : public ::testing::TestWithParam<const char*> {};

TEST_P(PbtToy, IsClimbedWhereAGridIsNot) {
  const Space space = unit_space(2);
  // A fit of the bandit's takes longer than all else here.
  const std::uint64_t seeds = std::string(GetParam()) == "pb2" ? 10 : 100;
  double worst = HUGE_VAL, worst_grid = -HUGE_VAL;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    for (const bool exchanges : {true, false}) {
      Problem problem = problem_on(space, "random", seed, 0);
      problem.scheduler = "pbt";
      problem.explore = GetParam();
      problem.rules = {.seed = seed,
                       .max_steps = 200,
                       .population = 2,
                       .interval = exchanges ? 4 : 200,
                       .quantile = 0.25};
      std::map<int, std::pair<double, double>> weights;
      const auto train = [&](const Trial& trial, std::int64_t step) {
        // The two members begin with h = (1, 0) and (0, 1).
        double h0 = trial.units[0], h1 = trial.units[1];
        if (trial.parent < 0) h0 = trial.member == 0 ? 1 : 0, h1 = 1 - h0;
        auto& [a, b] = weights[trial.number];
        if (trial.measured.empty()) {
          weights[trial.number] = trial.parent < 0 ? std::pair(.9, .9) : weights[trial.parent];
        }
        for (std::int64_t i = trial.reached(); i < step; ++i) {
          a -= 0.02 * 2 * h0 * a;
          b -= 0.02 * 2 * h1 * b;
        }
        return std::vector<double>{a * a + b * b};
      };
      const SimulatedOutcome outcome = simulate_study(problem, {.train = train, .seconds = {}});
      const int best = best_trials(outcome.history, problem.objectives, 200).front();
      const double q = 1.2 - outcome.history.trial(best).measured.back().values.front();
      if (exchanges) worst = std::min(worst, q);
      if (!exchanges) worst_grid = std::max(worst_grid, q);
    }
  }
  EXPECT_GE(worst, 1.15);
  EXPECT_NEAR(worst_grid, 0.39, 0.005);
}
INSTANTIATE_TEST_SUITE_P(Explore, PbtToy, ::testing::Values("perturb", "pb2"));

TEST(Pbt, ComparesAtEqualStepsAndForksFromTheBest) {
  const Space space = unit_space(2);
  Problem problem = problem_on(space, "random", 9, 0);
  problem.scheduler = "pbt";
  problem.rules = {.seed = 9, .max_steps = 40, .population = 8, .interval = 10};
  const SimulatedOutcome outcome = simulate_study(
      problem, {.train =
                    [](const Trial& trial, std::int64_t step) {
                      const bool diverges = trial.number == 3;
                      return std::vector<double>{diverges ? NAN : shown(trial, step)};
                    },
                .seconds = [](const Trial& trial, std::int64_t) { return 1.0 + trial.number % 3; },
                .workers = 3});
  int forks = 0;
  for (const Trial& trial : outcome.history.trials()) {
    if (trial.parent < 0) continue;
    ++forks;
    const Trial& parent = outcome.history.trial(trial.parent);
    ASSERT_NE(parent.at(trial.fork_step), nullptr);
    EXPECT_FALSE(parent.has_failed());
    // The donor was among the best two of that step.
    int better = 0;
    for (const Trial& other : outcome.history.trials()) {
      const Measurement* m = other.at(trial.fork_step);
      if (m != nullptr && m->values[0] < parent.at(trial.fork_step)->values[0]) ++better;
    }
    EXPECT_LT(better, 2);
  }
  EXPECT_EQ(forks, 3 * 2);  // of eight the worst two, after 10, 20 and 30 steps
  int finished = 0;
  for (const Trial& trial : outcome.history.trials()) finished += trial.end == End::kFinished;
  EXPECT_EQ(finished, 8);
}

TEST(Explore, StaysWithinBoundsAndMoves) {
  std::vector<Dimension> dimensions = {
      {.key = "lr", .low = 1e-4, .high = 1e-2, .log = true},
      {.key = "n", .kind = Dimension::Kind::kInteger, .low = 1, .high = 4},
      {.key = "c", .kind = Dimension::Kind::kCategory, .choices = {"a", "b", "c"}}};
  const Space space(dimensions);
  const Units from = space.canonical({0.5, 0.3, 0.5});
  int ups = 0, downs = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Units units = explore(space, from, 0, 1, i);
    const double ratio = std::get<double>(space[0].value(units[0])) / 1e-3;
    EXPECT_TRUE(std::abs(ratio - 1.2) < 1e-3 || std::abs(ratio - 0.8) < 1e-3) << ratio;
    (ratio > 1 ? ups : downs) += 1;
    EXPECT_NE(units[1], from[1]);
    EXPECT_EQ(units[2], from[2]);
    const Units edge = explore(space, space.canonical({1, 1, 0}), 0.25, 1, i);
    EXPECT_LE(std::get<double>(space[0].value(edge[0])), 1e-2);
  }
  EXPECT_GT(ups, 150);
  EXPECT_GT(downs, 150);
}

}  // namespace
}  // namespace atl::tune
