#pragma once

// `atoll runs compare`: which settings differ, and curves side by side.

#include <string>
#include <vector>

#include "atoll/watch/run_reader.h"

namespace atl::watch {

/// A setting that is not the same in all runs.
struct SettingDifference {
  std::string key;
  std::vector<std::string> values;  ///< as TOML, one a run; empty: the run has none
};

/// The settings that differ between runs, exactly: by their TOML values, in the order of the first
/// run, then those that it has not. Tables of tables are keys with dots.
std::vector<SettingDifference> differences(const std::vector<RunData>& runs);

/// What differs, and the values of `metrics` at some `rows` steps, with the last and the best
/// (lowest; of metrics whose name says a rate or fraction used, highest). Empty `metrics`: loss and
/// held_out_loss, those that there are.
std::string describe_comparison(const std::vector<RunData>& runs, std::vector<std::string> metrics,
                                int rows);
/// The same as JSON, with all buckets of the curves.
std::string comparison_json(const std::vector<RunData>& runs, std::vector<std::string> metrics);

}  // namespace atl::watch
