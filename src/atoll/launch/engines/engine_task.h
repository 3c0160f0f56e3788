#pragma once

// What torchrun and the engines of Kubernetes and of clouds tell each process that they start. They
// start one process for each rank (torchrun) or one on each machine (the others).

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace atl::launch {

/// Environment variables by name.
using Environment = std::map<std::string, std::string>;

/// One process of those that an engine has started.
struct EngineTask {
  std::string engine;           ///< "torchrun"
  std::string variables;        ///< "RANK=1, WORLD_SIZE=4, MASTER_ADDR=10.0.0.1", for messages
  bool is_rank = false;         ///< it is one rank; otherwise a machine, which may have several
  bool is_innermost = false;    ///< whatever started the engine itself says nothing of this process
  int index = 0;                ///< of this process among them
  int count = 0;                ///< how many there are; 0: the engine does not tell
  int ranks_each = 1;           ///< on each machine: as many as the engine asks for, or as GPUs
  std::string rendezvous = "";  ///< "tcp://HOST:PORT" of the first of them; empty: it is not told
};

/// The variables that engine_task() looks at, of this process, and what this machine calls itself.
Environment engine_environment();

/// The process that this is; nothing where no engine has started several. An Indexed Job does not
/// tell how many it has, so nothing is known of its first process unless `is_counted`: whether the
/// user says how many there are.
std::optional<EngineTask> engine_task(const Environment& environment, bool is_counted = false);

/// Takes those variables out of this process's environment, so that ranks that it starts do not
/// take them for theirs. Before any thread is made.
void forget_engine_environment();

}  // namespace atl::launch
