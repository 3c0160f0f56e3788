#pragma once

// The file with which a run's directory says that the run has nothing left to do. The number of
// steps does not say so: an island, or a run that stops early, ends before train.steps.

#include <cstdint>
#include <filesystem>

namespace atl::metrics {

/// The file in a run's directory: {"step": the last step, "time": Unix seconds}.
inline constexpr const char* kFinishedFile = "finished.json";

/// Writes the file: the run in `dir` has finished after `step` steps. Throws Error(kIo).
void write_finished(const std::filesystem::path& dir, std::int64_t step);
/// Removes the file, because the run goes on. Ignores failures.
void remove_finished(const std::filesystem::path& dir);
/// The step after which the run has finished; -1 where there is no file, or none that can be read.
std::int64_t finished_step(const std::filesystem::path& dir);

}  // namespace atl::metrics
