#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/param_server/messages.h"

namespace atl::param_server {

/// A run of the real state machines on a virtual clock and network. The same options give the same
/// schedule.
struct SimulationOptions {
  std::uint64_t seed = 1;
  Consistency consistency = Consistency::kBsp;
  std::int64_t staleness = 0;
  int num_workers = 3;
  int num_lanes = 3;
  int num_servers = 2;
  int replicas = 1;
  int num_slices = 5;
  std::int64_t num_steps = 8;
  std::int64_t fence_every = 0;
  std::int64_t period = 2;  ///< easgd

  // What goes wrong, at random times.
  int worker_kills = 0;  ///< each is started again
  int server_kills = 0;  ///< each is started again, empty; never the last copy of a slice
  int worker_stops = 0;  ///< frozen for a while; the scheduler takes the longer ones for dead
  int worker_joins = 0;
  int server_joins = 0;
  /// Each is started again with what it had written, and what was on its way to or from it is lost.
  int scheduler_kills = 0;

  /// This server (from 1; 0: none) is killed after so many messages that it has taken, whatever
  /// slices it alone has, and started again at its address with what its disk had so many messages
  /// before. What it must have written before it answers is not older than that.
  int disk_server = 0;
  std::int64_t killed_after = 0;
  std::int64_t written_before = 0;

  // Seconds.
  double latency = 0.001;    ///< of a message, on average
  double lease_seconds = 1;  ///< of silence, until a frozen one is taken for dead
  double restart_seconds = 0.5;
  /// How long a worker computes; empty: at random, about 0.1.
  std::function<double(int worker, std::int64_t step)> compute_seconds;
};

/// What happened.
struct SimulationResult {
  std::vector<std::string> violations;  ///< of what is promised; empty: none
  bool is_finished = false;
  double seconds = 0;           ///< until the run ended
  std::int64_t most_stale = 0;  ///< clock - slowest of any pull
  std::int64_t num_pulls = 0;
  std::int64_t num_pushes = 0;    ///< that came to servers, those that count once again included
  std::int64_t moved_slices = 0;  ///< copies that were made after the beginning
  std::vector<double> server_shares;  ///< of the copies, at the end
  std::uint64_t num_events = 0;
  std::int64_t disk_messages = 0;  ///< that `disk_server` has taken
  std::int64_t lost_pushes = 0;    ///< that it says it has lost
};

/// Throws Error(kInternal) when the run does not end within many times what it may take.
SimulationResult simulate(const SimulationOptions& options);

}  // namespace atl::param_server
