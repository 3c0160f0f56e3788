#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/island/simulation/simulation.h"

namespace atl::island {
namespace {

// The schedules after those of simulator_test, which says how one is replayed.
TEST(SimulatorSlow, TwentyThousandSchedulesKeepEveryPromise) {
  int num_failed = 0;
  for (std::uint64_t seed = 2000; seed < 22'000 && num_failed < 5; ++seed) {
    const SimulationReport report = simulate(random_simulation(seed), seed);
    if (report.violations.empty()) continue;
    ++num_failed;
    ADD_FAILURE() << "seed " << seed << ": " << report.violations.front();
  }
}

TEST(SimulatorSlow, LongRunsOfManyIslandsThatCrashAllTheTimeFinish) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SimulationOptions options;
    options.num_islands = 24;
    options.plan = {.num_fragments = 3,
                    .inner_steps = 10,
                    .total_batches = 24 * 10 * 40,
                    .min_islands = 12,
                    .grace_seconds = 1};
    options.parameters = 1e6;
    options.link = {.bits_per_second = 1e8, .latency = 0.02};
    options.overlap = seed % 2 == 0 ? options.plan.inner_steps : 0;
    options.mtbf = 60;
    options.max_seconds = 3600;
    const SimulationReport report = simulate(options, seed);
    ASSERT_TRUE(report.violations.empty()) << "seed " << seed << ": " << report.violations.front();
    EXPECT_EQ(report.batches, options.plan.total_batches);
    EXPECT_GT(report.crashes, 0);
  }
}

}  // namespace
}  // namespace atl::island
