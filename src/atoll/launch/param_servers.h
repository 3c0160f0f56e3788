#pragma once

// A run with parameter servers on this machine: a scheduler in this process, and each worker and
// each server a child.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/param_server/service.h"

namespace atl::launch {

/// What `atoll train -n N --sync.mode=ps` was told.
struct ServersPlan {
  std::string recipe;
  std::vector<std::string> overrides;
  int num_workers = 0;
  int max_restarts = 20;  ///< of each process
  /// As IslandsPlan::serve, of the scheduler.
  std::function<std::shared_ptr<void>(const param_server::SchedulerService&)> serve = {};
};

/// Starts them, starts again those that die, passes stop signals on, and returns the exit
/// code once all have ended. Throws as run_islands.
int run_param_servers(const ServersPlan& plan);

}  // namespace atl::launch
