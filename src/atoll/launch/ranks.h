#pragma once

// Which ranks a run has and which of them this process is, from flags and from what mpirun, srun
// and their like leave in the environment.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "atoll/launch/engines/engine_task.h"

namespace atl::launch {

/// What a command line says about ranks; empty: it does not.
struct RankFlags {
  std::optional<std::int64_t> num_ranks;    ///< -n
  std::string backend;                      ///< --backend
  std::string hostfile;                     ///< --hostfile
  std::optional<std::int64_t> rank, ranks;  ///< --rank, --ranks
  std::string rendezvous;                   ///< --rendezvous
};

/// Names of those that plan_ranks() looks at.
std::span<const char* const> rank_variables();

/// Those of this process that plan_ranks() looks at; at a shell that `srun --pty` has started
/// without those of the task that is that shell.
Environment rank_environment();

/// What this process has to do with the ranks of a run.
enum class Role : std::uint8_t {
  kAlone,    ///< it is the only rank
  kThreads,  ///< every rank is a thread of it
  kRank,     ///< it is one of them; others started it
  kParent,   ///< it starts them and watches
};

/// The rendezvous of ranks whose PMI passes the address of one on (engines/pmi.h).
inline constexpr const char* kPmiRendezvous = "pmi:";

/// The answer of plan_ranks().
struct RankPlan {
  Role role = Role::kAlone;
  std::string backend;     ///< its name; empty for kAlone
  int ranks = 1;           ///< 0: all slots of the hostfile (kParent), or MPI knows (kRank)
  int rank = 0;            ///< of kRank; -1: MPI knows
  std::string rendezvous;  ///< of Bootstrap::kRendezvous: "tcp://host:port" or "file:///directory";
                           ///< may be empty for kParent, which then chooses
                           ///< kPmiRendezvous: the PMI of rank 0 tells the others
  std::string hostfile;    ///< of kParent
  int here = 0;            ///< of kParent: how many of `ranks` it starts, from `rank` on, where
                           ///< others start the rest; 0: it starts all
  std::string origin;      ///< who said how many there are: "-n", "OMPI_COMM_WORLD_SIZE", ...
  std::string engine;      ///< that has started this process and said where ranks meet; or empty
};

/// Decides from flags and environment; touches nothing else. Open MPI's variables come before PMI's
/// and those before Slurm's, because each of these may run inside the next. A launcher with one
/// rank counts as none. Throws Error(kUser) that says what contradicts what.
RankPlan plan_ranks(const RankFlags& flags, const Environment& environment);

/// The same of a process that `task` describes. Where an engine starts one process on each machine
/// -n says how many ranks each machine has. Where it does not tell how many processes there are,
/// --ranks says how many ranks the run has.
RankPlan plan_engine_task(const RankFlags& flags, const EngineTask& task);

/// Whether mpirun, a PMI or srun has started this process beside others.
bool is_launched(const Environment& environment);

/// What a task of a scheduler's step is to an elastic launch.
struct LaunchTask {
  std::string engine;      ///< "srun"
  bool is_first = false;   ///< it is the launch; the others join it
  std::string rendezvous;  ///< where: "tcp://host:port"
  std::string name;        ///< of its own among them
  int num_tasks = 0;       ///< 0: the engine does not tell
  int slots = 0;           ///< ranks of each, where the engine says so; 0: it does not
};

/// Of a task that srun or an engine has started beside others; nothing where nobody has. Throws
/// Error(kUser) for what mpirun, a PMI or torchrun has started, who start ranks themselves.
std::optional<LaunchTask> launch_task(const Environment& environment, const Environment& engine);

/// What to say where one rank trains in a job of Slurm that has several tasks or nodes: in a batch
/// script, or at a shell of `salloc` or `srun --pty`. Empty: there is no such job.
std::string slurm_advice(const Environment& environment);

}  // namespace atl::launch
