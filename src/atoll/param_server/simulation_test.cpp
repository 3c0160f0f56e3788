#include "atoll/param_server/simulation.h"

#include <gtest/gtest.h>

namespace atl::param_server {
namespace {

const char* name_of(Consistency consistency) {
  switch (consistency) {
    case Consistency::kBsp:
      return "bsp";
    case Consistency::kSsp:
      return "ssp";
    case Consistency::kAsync:
      return "async";
    default:
      return "easgd";
  }
}

class EachConsistency : public testing::TestWithParam<Consistency> {};

INSTANTIATE_TEST_SUITE_P(Simulation, EachConsistency,
                         testing::Values(Consistency::kBsp, Consistency::kSsp, Consistency::kAsync,
                                         Consistency::kEasgd),
                         [](const auto& info) { return name_of(info.param); });

void expect_promises(const SimulationOptions& options) {
  const SimulationResult result = simulate(options);
  ASSERT_TRUE(result.violations.empty())
      << "seed " << options.seed << ": " << result.violations.front();
}

TEST_P(EachConsistency, RunsToItsEnd) {
  expect_promises({.consistency = GetParam(), .staleness = 2});
}

TEST_P(EachConsistency, CountsEachPushOnceThoughWorkersAndServersAreKilled) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    expect_promises({.seed = seed,
                     .consistency = GetParam(),
                     .staleness = static_cast<std::int64_t>(seed % 4),
                     .num_workers = 2 + static_cast<int>(seed % 3),
                     .num_lanes = 2 + static_cast<int>(seed / 3 % 4),
                     .num_servers = 2 + static_cast<int>(seed % 2),
                     .replicas = 2,
                     .fence_every = seed % 3 == 0 ? 4 : 0,
                     .worker_kills = static_cast<int>(seed % 3),
                     .server_kills = static_cast<int>(seed / 2 % 3),
                     .worker_stops = static_cast<int>(seed / 5 % 2),
                     .worker_joins = static_cast<int>(seed / 7 % 2),
                     .server_joins = static_cast<int>(seed / 11 % 2)});
  }
}

TEST_P(EachConsistency, CountsEachPushOnceThoughTheSchedulerIsKilled) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    expect_promises({.seed = seed,
                     .consistency = GetParam(),
                     .staleness = static_cast<std::int64_t>(seed % 4),
                     .num_workers = 1 + static_cast<int>(seed % 3),
                     .num_lanes = 3,
                     .num_servers = 2 + static_cast<int>(seed % 2),
                     .replicas = 2,
                     .fence_every = seed % 3 == 0 ? 4 : 0,
                     .worker_kills = static_cast<int>(seed / 2 % 2),
                     .server_kills = static_cast<int>(seed / 4 % 2),
                     .worker_joins = static_cast<int>(seed / 8 % 2),
                     .scheduler_kills = 1 + static_cast<int>(seed % 3)});
  }
}

}  // namespace
}  // namespace atl::param_server
