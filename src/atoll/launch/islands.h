#pragma once

// A run of several islands on this machine: a coordinator in this process, and each island a child.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/island/coordinator/service.h"

namespace atl::launch {

/// What `atoll train --islands` was told.
struct IslandsPlan {
  std::string recipe;
  std::vector<std::string> overrides;
  int num_islands = 0;
  int max_restarts = 3;  ///< of each island; it goes on from its own checkpoint
  /// See island::ServiceOptions.
  std::function<void(std::int64_t outer_step, const std::string& why)> on_island_lost = {};
  /// Serves what the coordinator knows for as long as what it returns lives, which is less long
  /// than the coordinator; may be empty. Shared, as this floor does not know of what type it is.
  std::function<std::shared_ptr<void>(const island::CoordinatorService&)> serve = {};
};

/// HOST:PORT of the process of that number where several on one machine each take the port after
/// the one before; `first` as it is where it asks for free ports (0), or is empty. Throws
/// Error(kUser) naming metrics.listen where there is no such port.
std::string metrics_listen(const std::string& first, int number);

/// Starts them, starts again those that die, passes stop signals on, and returns the exit
/// code once all have ended. Throws Error(kPeer) when an island has died too often, naming it; the
/// others are then stopped with a checkpoint.
int run_islands(const IslandsPlan& plan);

}  // namespace atl::launch
