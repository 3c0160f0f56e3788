#pragma once

// A run of several islands on this machine: a coordinator in this process, and each island a child.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace atl::launch {

/// What `atoll train --islands` was told.
struct IslandsPlan {
  std::string recipe;
  std::vector<std::string> overrides;
  int num_islands = 0;
  int max_restarts = 3;  ///< of each island; it goes on from its own checkpoint
  /// See island::ServiceOptions.
  std::function<void(std::int64_t outer_step, const std::string& why)> on_island_lost = {};
};

/// Starts them, starts again those that die, passes SIGINT and SIGTERM on, and returns the exit
/// code once all have ended. Throws Error(kPeer) when an island has died too often, naming it; the
/// others are then stopped with a checkpoint.
int run_islands(const IslandsPlan& plan);

}  // namespace atl::launch
