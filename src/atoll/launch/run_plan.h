#pragma once

// The ranks of `atoll train`, whoever has started it.

#include <cstdint>
#include <functional>
#include <string>

#include "atoll/launch/ranks.h"

namespace atl::launch {

/// What `atoll train` runs, as its recipe says.
enum class RunKind : std::uint8_t {
  kWhole,   ///< a run of its own
  kIsland,  ///< one island of a run
  kWorker,  ///< a worker of parameter servers, each of which is one process
};

/// What this process has to do with the ranks of a run, from its flags and its environment: flags
/// that name a rank or a hostfile come first, then torchrun itself, then mpirun, a PMI and srun,
/// then what else engine_task() finds. Processes of an Indexed Job that are islands are one island
/// each, because the job does not tell how many there are; those of other engines are ranks of one
/// island. Says which engine it has found, and what is odd: one rank that trains in a job of Slurm
/// which has room for more, or at a shell in a container. `kind` is asked where it matters. Throws
/// Error(kUser) that says what contradicts what.
RankPlan plan_run(const RankFlags& flags, const std::function<RunKind()>& kind);

/// Takes rank_variables() and those of engines out of this process's environment, so that ranks
/// that it starts do not take them for theirs. Before any thread is made.
void forget_rank_environment();

/// Waits until `plan`'s rendezvous can be looked up, where an engine has named it.
void wait_for_rendezvous(const RankPlan& plan, double timeout_s);

}  // namespace atl::launch
