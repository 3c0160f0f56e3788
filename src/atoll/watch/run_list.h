#pragma once

// `atoll runs list`: one line per run.

#include <string>
#include <vector>

#include "atoll/watch/run_reader.h"

namespace atl::watch {

/// What a run is doing.
enum class ListedState : std::uint8_t {
  kRunning,   ///< a process of this machine holds its lock
  kFinished,  ///< not running; has taken all its steps, or finished.json says so
  kStopped,
};

/// "running", "finished" or "stopped".
const char* name_of(ListedState state);
ListedState state_of(const RunData& run);

/// The orders that a list of runs can have; the first is the default of --sort.
const std::vector<std::string>& sort_names();

/// Sorts by "time" (newest last record first), "name", "step" (most first), "loss" or "held_out"
/// (lowest first; runs without that loss come last). Throws Error(kUser) for another word.
void sort_runs(std::vector<RunData>& runs, const std::string& by);

/// A table of runs with a line of headings.
std::string describe_list(const std::vector<RunData>& runs);
/// The same list as a JSON array, with numbers not rounded.
std::string list_json(const std::vector<RunData>& runs);

}  // namespace atl::watch
