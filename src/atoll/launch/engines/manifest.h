#pragma once

// The script or manifest by which a scheduler starts a run: `atoll launch --print`.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace atl::launch {

/// What is to be started. Each of `islands` has `machines` of its own; 0 islands: one run.
struct ManifestRequest {
  std::string name;                    ///< of the job, see job_name()
  std::string recipe;                  ///< the file, as this machine calls it
  std::string recipe_text;             ///< what is in it; empty: there is no recipe
  std::vector<std::string> overrides;  ///< "--train.steps=5", without run.dir and island.*
  std::string run_dir;                 ///< of the run; islands have directories in it
  int machines = 1;
  int ranks_each = 1;            ///< of each machine
  int min_ranks = 0;             ///< fewest to go on with when some are lost; 0: all
  int threads = 0;               ///< CPUs of each rank; 0: all of a machine, shared out
  std::size_t memory_bytes = 0;  ///< of a machine; 0: it is not known
  bool has_gpus = false;         ///< each rank has one
  int islands = 0;
  std::string coordinator;  ///< HOST:PORT; empty: the manifest starts one
  std::string image;        ///< of containers

  int ranks() const { return machines * ranks_each; }
};

/// "slurm", "kubernetes", "jobset".
std::vector<std::string> manifest_kinds();

/// A script for sbatch, or YAML for `kubectl apply`. Throws Error(kUser) for a kind that there is
/// not, and for what that kind cannot start, with the way out.
std::string manifest(std::string_view kind, const ManifestRequest& request);

/// `text` as a name of Kubernetes: lower-case letters, digits and '-', at most 40 of them, so that
/// names of islands and pods, which are longer, fit as well. "atoll" where nothing is left.
std::string job_name(std::string_view text);

}  // namespace atl::launch
