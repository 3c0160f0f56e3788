#include "atoll/tune/run/starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/tune/trial/testing.h"

namespace atl::tune {
namespace {

using ::testing::DoubleNear;

// Figures of the paper's formula at two sizes, computed apart from it.
TEST(Starts, StepLawIsThatOfThePaper) {
  const StepLaw middle = step_law(46e6, 128e6);
  EXPECT_THAT(middle.lr, DoubleNear(0.0019, 5e-5));
  EXPECT_THAT(middle.batch_tokens, DoubleNear(24'700, 100));
  const StepLaw small = step_law(5e6, 819e3);
  EXPECT_THAT(small.lr, DoubleNear(0.00196, 5e-6));
  EXPECT_THAT(small.batch_tokens, DoubleNear(1'380, 10));
}

TEST(Starts, AreTriedFirstAndOnce) {
  const Space space = testing::unit_space(2);
  for (const char* searcher : {"gp", "tpe", "cma-es", "random"}) {
    Problem problem = testing::problem_on(space, searcher, 1, 20);
    problem.starts = {{0.25, 0.75}, {0.5, 0.125}};
    const SimulatedOutcome outcome =
        simulate_study(problem, {.train = [](const Trial& trial, std::int64_t) {
                         return std::vector<double>{testing::branin_regret(trial.units)};
                       }});
    const auto& trials = outcome.history.trials();
    ASSERT_EQ(trials.size(), 20u) << searcher;
    EXPECT_EQ(trials[0].units, problem.starts[0]);
    EXPECT_EQ(trials[1].units, problem.starts[1]);
    for (std::size_t i = 2; i < trials.size(); ++i) {
      EXPECT_NE(trials[i].units, problem.starts[0]);
      EXPECT_NE(trials[i].units, problem.starts[1]);
    }
  }
}

}  // namespace
}  // namespace atl::tune
