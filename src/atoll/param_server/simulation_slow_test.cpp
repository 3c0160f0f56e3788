#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "atoll/base/rng.h"
#include "atoll/param_server/simulation.h"

namespace atl::param_server {
namespace {

// Each schedule has other workers, servers, copies, faults and times.
SimulationOptions schedule(std::uint64_t seed) {
  const RngStream random(seed, RngPurpose::kSynthetic);
  std::uint64_t draws = 0;
  const auto up_to = [&](std::uint64_t most) {
    return static_cast<int>(random.word(draws++) % (most + 1));
  };
  SimulationOptions options;
  options.seed = seed;
  options.consistency = static_cast<Consistency>(up_to(3));
  options.staleness = up_to(4);
  options.num_workers = 1 + up_to(3);
  options.num_lanes = options.num_workers + up_to(2);
  options.num_servers = 1 + up_to(3);
  options.replicas = options.num_servers == 1 ? 1 : 1 + up_to(1);
  options.num_slices = 1 + up_to(6);
  options.num_steps = 4 + up_to(8);
  options.fence_every = up_to(1) * (2 + up_to(4));
  options.period = 1 + up_to(2);
  options.worker_kills = up_to(3);
  options.server_kills = options.replicas > 1 ? up_to(3) : 0;
  options.worker_stops = up_to(2);
  options.worker_joins = up_to(2);
  options.server_joins = up_to(2);
  return options;
}

TEST(SimulationSchedules, KeepEveryPromise) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const SimulationResult result = simulate(schedule(seed));
    ASSERT_TRUE(result.violations.empty()) << "seed " << seed << ": " << result.violations.front();
  }
}

// The same, and the scheduler is killed and goes on with what it had written.
TEST(SimulationSchedules, KeepEveryPromiseThoughTheSchedulerIsKilled) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SimulationOptions options = schedule(seed);
    options.scheduler_kills = 1 + static_cast<int>(seed % 3);
    const SimulationResult result = simulate(options);
    ASSERT_TRUE(result.violations.empty()) << "seed " << seed << ": " << result.violations.front();
  }
}

// By hand: ATOLL_SIMULATION_SEEDS=FIRST-LAST.
TEST(SimulationSchedules, OfAskedSeedsKeepEveryPromise) {
  const char* wish = std::getenv("ATOLL_SIMULATION_SEEDS");
  if (wish == nullptr) GTEST_SKIP() << "no seeds were asked for";
  std::uint64_t first = 0, last = 0;
  ASSERT_EQ(std::sscanf(wish, "%lu-%lu", &first, &last), 2);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SimulationOptions options = schedule(seed);
    for (options.scheduler_kills = 0; options.scheduler_kills < 4; options.scheduler_kills += 2) {
      const SimulationResult result = simulate(options);
      EXPECT_TRUE(result.violations.empty())
          << "seed " << seed << ", " << options.scheduler_kills
          << " kills of the scheduler: " << result.violations.front();
    }
  }
}

// Servers were lost while the lead gave them the state.
TEST(SimulationSchedules, ThatOnceHung) {
  const SimulationResult result = simulate(schedule(6281));
  EXPECT_TRUE(result.violations.empty());
}

// Each step is four times as slow as the others with this probability; no network to speak of.
double seconds_with(Consistency consistency, std::int64_t staleness, int workers) {
  const auto compute = [](int worker, std::int64_t step) {
    const RngStream random(7, RngPurpose::kSynthetic, static_cast<std::uint64_t>(worker));
    return random.uniform(static_cast<std::uint64_t>(step)) < 0.1 ? 4.0 : 1.0;
  };
  const SimulationResult result = simulate({.consistency = consistency,
                                            .staleness = staleness,
                                            .num_workers = workers,
                                            .num_lanes = workers,
                                            .num_servers = 1,
                                            .num_slices = 1,
                                            .num_steps = 1500,
                                            .latency = 1e-6,
                                            .compute_seconds = compute});
  EXPECT_TRUE(result.violations.empty());
  return result.seconds;
}

// How much a bound helps against passing stragglers, computed from the maximum of random walks that
// may part by no more than the bound. Speed over bsp.
TEST(SimulationSpeed, OfABoundIsWhatTheoryGives) {
  struct Gain {
    int workers;
    std::int64_t staleness;
    double over_bsp;
  };
  for (const Gain& gain :
       {Gain{2, 1, 1.08}, Gain{2, 3, 1.14}, Gain{4, 1, 1.21}, Gain{4, 3, 1.39}, Gain{8, 3, 1.75}}) {
    const double ratio = seconds_with(Consistency::kBsp, 0, gain.workers) /
                         seconds_with(Consistency::kSsp, gain.staleness, gain.workers);
    EXPECT_NEAR(ratio, gain.over_bsp, 0.1 * gain.over_bsp)
        << gain.workers << " workers, s = " << gain.staleness;
  }
}

// Nothing helps against a worker that is always slow.
TEST(SimulationSpeed, OfAPermanentStragglerIsTheSameWithAnyBound) {
  const auto seconds = [](Consistency consistency, std::int64_t staleness) {
    return simulate({.consistency = consistency,
                     .staleness = staleness,
                     .num_workers = 4,
                     .num_lanes = 4,
                     .num_servers = 1,
                     .num_slices = 1,
                     .num_steps = 300,
                     .latency = 1e-6,
                     .compute_seconds =
                         [](int worker, std::int64_t /*step*/) { return worker == 1 ? 4.0 : 1.0; }})
        .seconds;
  };
  const double bsp = seconds(Consistency::kBsp, 0);
  EXPECT_NEAR(bsp / seconds(Consistency::kSsp, 5), 1, 0.02);
}

}  // namespace
}  // namespace atl::param_server
