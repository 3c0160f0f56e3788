#pragma once

// What `atoll runs` does with runs and their curves: list, compare, plot.

#include <string>
#include <vector>

namespace atl::cli {

/// Its flags.
struct RunsOptions {
  bool json = false;
  std::string sort = "time";
  std::vector<std::string> metrics;
  int rows = 0;  ///< 0: as many as the action likes
  std::string x = "step";
  double smooth = 0;
  bool log_y = false;
  std::string svg;
  std::string format;
  std::string out;
};

/// Prints a line for each run below the directories; none: below "runs".
int list_runs(const std::vector<std::string>& paths, const RunsOptions& options);
/// Prints which settings of two runs or more differ, and their curves side by side.
int compare_runs(const std::vector<std::string>& paths, const RunsOptions& options);
/// Prints or draws the curves of one metric.
int plot_runs(const std::vector<std::string>& paths, const RunsOptions& options);
/// Writes runs for other programs: csv, wandb, trackio or html.
int export_runs(const std::vector<std::string>& paths, const RunsOptions& options);

}  // namespace atl::cli
