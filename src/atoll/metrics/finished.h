#pragma once

// That a run has nothing left to do, as its directory says it: an island of a run may end after
// fewer steps than train.steps, and so does a run that stops early.

#include <cstdint>
#include <filesystem>

namespace atl::metrics {

/// The file of a run's directory: {"step": the last one, "time": Unix seconds}.
inline constexpr const char* kFinishedFile = "finished.json";

/// Says that the run in `dir` has finished after `step` steps. Throws Error(kIo).
void write_finished(const std::filesystem::path& dir, std::int64_t step);
/// Takes that back, as the run goes on.
void remove_finished(const std::filesystem::path& dir);
/// The step after which the run has finished; -1 where it has not, or the file is not one of ours.
std::int64_t finished_step(const std::filesystem::path& dir);

}  // namespace atl::metrics
