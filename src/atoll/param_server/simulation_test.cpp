#include "atoll/param_server/simulation.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

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

// A server is killed after each message, and comes back with what its disk had after each message
// before: the run goes on, and what is lost is counted.
TEST_P(EachConsistency, GoesOnWithWhateverAServersDiskHas) {
  SimulationOptions options = {.consistency = GetParam(),
                               .staleness = 1,
                               .num_workers = 2,
                               .num_lanes = 2,
                               .num_servers = 2,
                               .num_slices = 3,
                               .num_steps = 4,
                               .fence_every = 2,
                               .disk_server = 1};
  for (const int joins : {0, 1}) {
    // With one that joins: it is that one, which gets slices of the others while they train.
    options.server_joins = joins;
    options.disk_server = joins == 0 ? 1 : 3;
    options.killed_after = 0;
    const std::int64_t messages = simulate(options).disk_messages;
    EXPECT_GT(messages, 10);
    std::int64_t most_lost = 0;
    for (std::int64_t after = 1; after <= messages; ++after) {
      for (std::int64_t before = 0; before <= std::min<std::int64_t>(after, 24); ++before) {
        options.killed_after = after;
        options.written_before = before;
        const std::string how =
            fmt::format("server {} killed after message {} with the disk of {} messages before: ",
                        options.disk_server, after, before);
        SimulationResult result;
        ASSERT_NO_THROW(result = simulate(options)) << how;
        ASSERT_TRUE(result.violations.empty()) << how << result.violations.front();
        most_lost = std::max(most_lost, result.lost_pushes);
      }
    }
    // An average's key is the slice's own clock.
    if (GetParam() != Consistency::kEasgd) {
      EXPECT_GT(most_lost, 0);
    }
  }
}

}  // namespace
}  // namespace atl::param_server
