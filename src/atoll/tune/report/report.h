#pragma once

// A study as a person and as a program reads it.

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/tune/run/run_study.h"

namespace atl::tune {

/// A study that was read from its directory.
struct StudyReport {
  const Study& study;
  const StudyContent& content;
  const History& history;
};

/// Points of a trial's learning curve: step and value of the first objective, with those of the
/// trial that it was forked from; and what its runs have evaluated in between.
std::vector<std::pair<std::int64_t, double>> learning_curve(const StudyReport& report,
                                                            const Trial& trial);

/// What is under way, what is best, and a line for each trial, the best first; as many as `rows`,
/// 0: all.
std::string describe(const StudyReport& report, int rows);

/// All of it: trials with settings, unit coordinates, measurements and curves, the best, the
/// importance of each dimension, who was forked from whom.
std::string to_json(const StudyReport& report);

/// The recipe with the settings of a trial.
std::string tuned_recipe(const Study& study, const Trial& trial);

/// Draws importance.svg, parallel.svg, curves.svg and, of a population, family.svg into
/// `directory`. Returns their paths.
std::vector<std::filesystem::path> write_plots(const StudyReport& report,
                                               const std::filesystem::path& directory);

}  // namespace atl::tune
