#pragma once

// Launchers that have started this process beside others, and whose variables atoll does not take
// for ranks: torchrun, and the engines of Kubernetes and of clouds.

#include <functional>
#include <optional>
#include <string>

#include "atoll/launch/ranks.h"

namespace atl::launch {

/// What such a launcher's variables say.
struct ForeignLauncher {
  std::string name;       ///< "torchrun"
  std::string variables;  ///< "RANK=1, WORLD_SIZE=4, MASTER_ADDR=10.0.0.1"
  int rank = 0;
  std::string flags;  ///< "--rank=1 --ranks=4 --rendezvous=tcp://10.0.0.1:29500"
};

/// Their variables in the environment of this process.
Environment foreign_environment();

/// The launcher that has started several processes, of which this is one; nothing where none has,
/// or only this one. An Indexed Job does not tell how many it has: of its first process nothing is
/// known.
std::optional<ForeignLauncher> foreign_launcher(const Environment& environment);

/// Throws Error(kUser) for a process of `atoll train` that such a launcher has started beside
/// others, and whose flags do not say which ranks it has: each would train by itself. `environment`
/// also has what plan_ranks() takes, which may say the same.
void refuse_foreign_launcher(const RankFlags& flags, const Environment& environment);

/// plan_ranks() of this process for `atoll train`, after refuse_foreign_launcher(); where one rank
/// trains in a job of Slurm that has room for more, it says so. `is_run_of_its_own`, asked where it
/// matters: whether what is trained is no part of a larger run, whose parts are started one by one.
RankPlan plan_run(const RankFlags& flags, const std::function<bool()>& is_run_of_its_own);

/// Throws Error(kUser) for an `atoll launch` that joins no other where such a launcher has started
/// others before this one.
void refuse_foreign_launch(const Environment& environment);

/// Takes rank_variables() and those of such launchers out of this process's environment, so that
/// ranks that it starts do not take them for theirs. Before any thread is made.
void forget_rank_environment();

}  // namespace atl::launch
