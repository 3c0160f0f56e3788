#pragma once

// One rank of a run in a process of its own.

#include <functional>
#include <string>
#include <vector>

#include "atoll/base/settings/settings.h"
#include "atoll/comm/world.h"
#include "atoll/launch/ranks.h"
#include "atoll/launch/report.h"

namespace atl::launch {

/// What the process that started this rank has told it beside its rank.
struct RankOptions {
  int report_fd = -1;          ///< where it reports; -1: nobody listens, so it prints its errors
  bool watches_input = false;  ///< signals come by standard input; the rank ends with it
  int generation = 0;          ///< how often the ranks have been started before
  int number = -1;             ///< of a rank under `atoll launch` that may outlive others; -1: none
  bool joins = false;          ///< the same, and it joins while the others train
};

/// Runs `body` in a process that was started as rank `rank`, and returns its exit code. An error is
/// reported to the process that started this one, or thrown when none listens.
int run_watched(const RankOptions& options, int rank,
                const std::function<int(RankReporter& reporter)>& body);

/// Opens the world of `plan` (Role::kRank), calls `body` and returns what that returns. An error
/// is reported once, or thrown when nobody listens, by the rank that World::agree() chose; the
/// others return its exit code.
int run_rank(const RankPlan& plan, const RankOptions& options,
             const comm::WorldOptions& world_options,
             const std::function<int(comm::World& world, RankReporter& reporter)>& body);

/// Runs `body` on every rank of `plan` (Role::kThreads), each a thread of this process, as
/// comm::run_threads() does.
void run_rank_threads(const RankPlan& plan, const comm::WorldOptions& world_options,
                      const std::function<void(comm::World& world)>& body);

/// What all ranks of a run must have in common, a line each: version and settings, without what may
/// differ from host to host (device.*, data.cache_dir); of device.bf16 and device.attention what
/// they come to here, if the run is in bf16. Those of one version match one to one.
std::vector<std::string> agreement_lines(const std::string& version, const Settings& settings);

/// Throws Error(kUser) that names the first line in which `who` differs from rank 0.
void check_agreement(const std::vector<std::string>& mine, const std::vector<std::string>& first,
                     const std::string& who);

/// check_agreement() on every rank; what it throws is told once. Every rank must call it.
void agree_on(comm::World& world, const std::vector<std::string>& mine);

/// agree_on() version and settings.
void agree_on_settings(comm::World& world, const std::string& version, const Settings& settings);

/// How many threads this rank may use when the ranks that share its CPUs share them evenly. Ranks
/// share CPUs when they are on one host and bound to the same ones. Every rank must call it.
int fair_threads(comm::World& world);

}  // namespace atl::launch
