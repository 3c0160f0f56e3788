#pragma once

// `atoll runs compare`: the settings that differ between runs, and their curves side by side.

#include <string>
#include <vector>

#include "atoll/watch/run_reader.h"

namespace atl::watch {

/// A setting that is not the same in all runs.
struct SettingDifference {
  std::string key;
  std::vector<std::string> values;  ///< as TOML, one per run; empty: the run does not have it
};

/// The settings whose TOML values differ between runs, in the order of the first run, then those
/// that the first run does not have. Nested tables are keys with dots.
std::vector<SettingDifference> differences(const std::vector<RunData>& runs);

/// A text with the settings that differ, and the values of `metrics` at about `rows` steps, with
/// the last and the best value (the lowest; of tokens_per_s and mfu the highest). Empty `metrics`:
/// loss and held_out_loss, as far as runs have them. Throws Error(kUser) for a metric that no run
/// has.
std::string describe_comparison(const std::vector<RunData>& runs, std::vector<std::string> metrics,
                                int rows);
/// The same comparison as JSON, with all buckets of the curves.
std::string comparison_json(const std::vector<RunData>& runs, std::vector<std::string> metrics);

}  // namespace atl::watch
