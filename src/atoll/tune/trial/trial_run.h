#pragma once

// A trial as a run: its directory, its command line, and what it has shown.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/tune/search/trial.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// Where a trial of a study is kept: "studies/x/trials/0007".
std::filesystem::path trial_dir(const Study& study, int trial);
/// The run's directory in there of the steps up to `step`: one for all where trials go on from
/// their checkpoints, else one a rung.
std::filesystem::path run_dir(const Study& study, int trial, std::int64_t step);
/// Where that run's metrics and settings are: of several islands, those of one.
std::filesystem::path log_dir(const Study& study, int trial, std::int64_t step,
                              std::int64_t island = 1);
/// A checkpoint of that run.
std::filesystem::path checkpoint_dir(const Study& study, int trial, std::int64_t step);

/// Puts the checkpoint that a fork begins from into its own directory, as links to the donor's
/// files: they stay whatever the donor's run, or anybody who counts its checkpoints, removes. What
/// is there already stays. To be called before the donor takes another step. Throws Error(kDamaged)
/// when the donor has no such checkpoint, Error(kIo).
void link_fork(const Study& study, const Trial& trial);

/// Makes the directory what `atoll train` needs to take the steps to `step`: with the study's
/// tokens, and of a fork the donor's checkpoint. Files are linked, not copied. What is there
/// already stays. Throws Error(kIo).
void prepare_run(const Study& study, const Trial& trial, std::int64_t step);

/// The command line that trains to `step`; argv[0] is `program`.
std::vector<std::string> train_arguments(const Study& study, const Trial& trial, std::int64_t step,
                                         const std::string& program, std::int64_t threads);
/// The command line that answers the study's task with the checkpoint of `step`, and the file that
/// it writes.
std::vector<std::string> task_arguments(const Study& study, const Trial& trial, std::int64_t step,
                                        const std::string& program, std::int64_t threads);
std::filesystem::path task_results(const Study& study, int trial, std::int64_t step);

/// What the run says of its steps up to `step`, when it has taken them. Throws Error(kUser) for an
/// objective that is not among its metrics, Error(kInternal) where it did not train with the
/// trial's settings: those of its own settings.toml, and the learning rate of its step record.
Measurement measure(const Study& study, const Trial& trial, std::int64_t step);

/// Why the run stopped by itself: its last steps were not finite; empty: not that.
std::string divergence(const Study& study, const Trial& trial, std::int64_t step);

/// Removes checkpoints that nobody needs any more: of trials that are over, are not `kept`, and
/// have no fork that is still to begin.
void remove_checkpoints(const Study& study, const std::vector<Trial>& trials,
                        const std::vector<int>& kept);

}  // namespace atl::tune
