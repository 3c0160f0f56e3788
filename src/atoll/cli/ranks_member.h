#pragma once

// One rank of a run in a process of its own.

#include <functional>
#include <string>

#include "atoll/base/settings.h"
#include "atoll/cli/launch_report.h"
#include "atoll/cli/ranks.h"
#include "atoll/comm/world.h"

namespace atl::cli {

/// What whoever started this rank has told it beside its place.
struct MemberOptions {
  int report_fd = -1;          ///< where it reports; -1: nobody listens, so it prints its errors
  bool watches_input = false;  ///< it obeys, and lives as long as, its standard input
  int generation = 0;          ///< how often the ranks have been started before
};

/// Opens the world of `plan` (Role::kMember), calls `body` and returns what that returns. An error
/// is told once: by the rank that World::agree() chose, to whoever listens or by throwing it; the
/// others return its exit code.
int run_member(const RankPlan& plan, const MemberOptions& options,
               const comm::WorldOptions& world_options,
               const std::function<int(comm::World& world, Reporter& reporter)>& body);

/// Throws Error(kUser), told once, unless all ranks have the same version and settings; where they
/// differ it names a key, both values and both ranks. What may differ from host to host is left
/// out: device.* and data.cache_dir. Every rank must call it.
void agree_on_settings(comm::World& world, const std::string& version, const Settings& settings);

/// How many threads this rank may use when the ranks that share its CPUs share them evenly. Ranks
/// share CPUs when they are on one host and bound to the same ones. Every rank must call it.
int fair_threads(comm::World& world);

}  // namespace atl::cli
