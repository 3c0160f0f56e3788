#include "atoll/cli/pages/runs_curves.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/base/terminal.h"
#include "atoll/watch/run_compare.h"
#include "atoll/watch/run_export.h"
#include "atoll/watch/run_list.h"
#include "atoll/watch/run_plot.h"

namespace atl::cli {

namespace fs = std::filesystem;
using watch::RunData;

namespace {

constexpr const char* kRuns = "runs";
constexpr int kCompareRows = 12;
constexpr int kPlotRows = 20;
constexpr int kPlotColumns = 100;

void tell_bad_lines(const RunData& run) {
  if (run.num_bad_lines == 0) return;
  log::warning("{}: {} left out: damaged, or of another program",
               (run.dir / "metrics.jsonl").string(),
               counted(run.num_bad_lines, "line is", "lines are"));
}

std::vector<RunData> read_all(const std::vector<std::string>& paths) {
  std::vector<RunData> runs;
  for (const std::string& path : paths) {
    for (const auto& [name, dir] : watch::runs_at(path)) {
      runs.push_back(watch::read_run(dir, name));
      tell_bad_lines(runs.back());
    }
  }
  return runs;
}

}  // namespace

int list_runs(const std::vector<std::string>& paths, const RunsOptions& options) {
  std::vector<RunData> runs;
  for (const fs::path root : paths.empty() ? std::vector<std::string>{kRuns} : paths) {
    if (!directory_exists(root)) {
      throw user_error("there is no directory {}{}", root.string(), advice_for_absent(root));
    }
    auto below = watch::runs_below(root);
    if (below.empty()) below = {{root.string(), root}};
    for (const auto& [name, dir] : below) {
      try {
        runs.push_back(watch::read_run(dir, name));
      } catch (const Error& error) {  // one that is damaged, or went meanwhile
        log::warning("{}", error.what());
      }
    }
  }
  watch::sort_runs(runs, options.sort);
  if (options.json) {
    fmt::print("{}\n", watch::list_json(runs));
  } else {
    fmt::print("{}", watch::describe_list(runs));
  }
  return 0;
}

int compare_runs(const std::vector<std::string>& paths, const RunsOptions& options) {
  const std::vector<RunData> runs = read_all(paths);
  if (runs.size() < 2) throw user_error("compare what? give the directories of two runs or more");
  if (options.json) {
    fmt::print("{}\n", watch::comparison_json(runs, options.metrics));
  } else {
    fmt::print("{}", watch::describe_comparison(runs, options.metrics,
                                                options.rows > 0 ? options.rows : kCompareRows));
  }
  return 0;
}

int plot_runs(const std::vector<std::string>& paths, const RunsOptions& options) {
  if (options.metrics.size() > 1) throw user_error("--metric: plot draws one at a time");
  const std::vector<RunData> runs = read_all(paths);
  if (runs.empty()) throw user_error("plot what? give the directory of a run");
  watch::PlotOptions plot = {.x = watch::plot_axis(options.x),
                             .smooth = options.smooth,
                             .log_y = options.log_y,
                             .rows = options.rows > 0 ? options.rows : kPlotRows};
  if (!options.metrics.empty()) plot.metric = options.metrics.front();
  const int columns = terminal_columns(STDOUT_FILENO);
  plot.columns = columns > 0 ? columns : kPlotColumns;
  if (options.svg.empty()) {
    fmt::print("{}", watch::plot_text(runs, plot));
    return 0;
  }
  write_file(options.svg, watch::plot_svg(runs, plot));
  log::info("{} has the curves", options.svg);
  return 0;
}

int export_runs(const std::vector<std::string>& paths, const RunsOptions& options) {
  const std::vector<RunData> runs = read_all(paths);
  if (runs.empty()) throw user_error("export what? give the directory of a run");
  if (options.format.empty()) {
    throw user_error("export as what? give --format csv, wandb, trackio or html");
  }
  const std::string name = watch::short_name(runs.front());
  if (runs.size() > 1 && options.format == "csv") {
    throw user_error("--format csv writes one run a file, and {} has {}; name one of them",
                     fmt::join(paths, " "), runs.size());
  }
  const auto out = [&](const std::string& usual) {
    return options.out.empty() ? fs::path(usual) : fs::path(options.out);
  };
  if (options.format == "html") {
    const fs::path file = out(name + ".html");
    write_file(file, watch::export_html(runs));
    fmt::print("{}\n", file.string());
    return 0;
  }
  for (const RunData& run : runs) {
    if (options.format == "csv") {
      const fs::path file = out(name + ".csv");
      watch::export_csv(run, file);
      fmt::print("{}\n", file.string());
    } else if (options.format == "wandb") {
      fmt::print("{}\n", watch::export_wandb(run, out("wandb")).string());
    } else {
      fmt::print("{}\n", watch::export_trackio(run, out("trackio")).string());
    }
  }
  return 0;
}

}  // namespace atl::cli
