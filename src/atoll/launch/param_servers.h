#pragma once

// A run with parameter servers on this machine: a scheduler in this process, and each worker and
// each server a child.

#include <string>
#include <vector>

namespace atl::launch {

/// What `atoll train -n N --sync.mode=ps` was told.
struct ServersPlan {
  std::string recipe;
  std::vector<std::string> overrides;
  int num_workers = 0;
  int max_restarts = 20;  ///< of each process
};

/// Starts them, starts again those that die, passes SIGINT and SIGTERM on, and returns the exit
/// code once all have ended. Throws as run_islands.
int run_param_servers(const ServersPlan& plan);

}  // namespace atl::launch
