#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/terminal.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/pages/metrics_page.h"
#include "atoll/cli/pages/watch_beside.h"
#include "atoll/launch/agent.h"
#include "atoll/launch/rank_processes.h"
#include "atoll/launch/run_plan.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/memory_check.h"
#include "atoll/train/progress/interrupt.h"
#include "atoll/tune/lease/lease_worker.h"
#include "atoll/tune/report/coordinate_check.h"
#include "atoll/tune/report/report.h"
#include "atoll/tune/run/run_study.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string study;      // of `atoll tune` itself: a file
  std::string directory;  // of its parts
  int rows = 20;
  double every = 0;
  bool json = false;
  int trial = -1;
  std::string write;
  std::string out;
  WatchFlags watch;
  MetricsFlags metrics;
  std::string recipe;  // of the coordinate check
  tune::CoordinateOptions coordinates;
  double limit = 0.05;
  tune::WorkOptions work;
  std::string identity;
  std::string secret;
};

// A study that is only looked at.
struct Opened {
  explicit Opened(const std::string& dir)
      : study(tune::open_study(dir)),
        content(tune::read_study(dir)),
        history(tune::history_of(content)) {}
  tune::StudyReport report() const { return {*study, content, history}; }

  std::unique_ptr<tune::Study> study;
  tune::StudyContent content;
  tune::History history;
};

int run_to_the_end(const tune::Study& study, const Options& options) {
  const std::string dir = study.dir().string();
  const WatchBeside watch(options.watch, {dir});
  SharedStatus<StudyStatus> status;
  const auto metrics = serve_metrics(options.metrics, [&] { return to_page(status.get()); });
  tune::StudyWatcher watcher;
  if (metrics) {
    watcher = [&](const tune::History& history, int num_running) {
      status.set(status_of(study, history, num_running));
    };
  }
  const tune::StudyOutcome outcome = tune::run_study(study, launch::this_program(), watcher);
  if (outcome.signal != 0) {
    fmt::print("stopped; `atoll tune resume {}` goes on\n", dir);
    return 128 + outcome.signal;
  }
  const Opened opened(dir);
  constexpr int kRows = 5;
  fmt::print("\n{}\n`atoll tune best {} --write recipe.toml` writes the best recipe\n",
             tune::describe(opened.report(), kRows), dir);
  return 0;
}

int start(const Options& options, const Invocation& invocation) {
  if (options.study.empty()) {
    throw user_error(
        "what is to be tuned? give a study file: recipes/kjv-study.toml is one, and "
        "docs/tune-a-run.md shows how to write one");
  }
  if (directory_exists(options.study)) {
    throw user_error("{} is a directory; say `atoll tune resume {}`, or give a study file",
                     options.study, options.study);
  }
  const bool is_word = options.study.find_first_of("./") == std::string::npos;
  if (is_word && !path_exists(options.study)) {
    throw user_error(
        "there is no study file {}, and `atoll tune` has no part of that name; it has resume, "
        "show, "
        "best, plot, work and coordcheck",
        options.study);
  }
  const tune::Study study(options.study, invocation.overrides);
  return run_to_the_end(study, options);
}

int resume(const Options& options, const Invocation& invocation) {
  if (tune::has_begun(options.directory)) {
    const std::string begun_in = tune::read_study(options.directory).directory;
    if (begun_in != fs::current_path().string()) {
      throw user_error("the study was begun in {}, which its paths are relative to; go there first",
                       begun_in);
    }
  }
  return run_to_the_end(*tune::open_study(options.directory, invocation.overrides), options);
}

int show(const Options& options) {
  const train::InterruptGuard interrupt;
  for (;;) {
    const Opened opened(options.directory);
    if (options.json) {
      fmt::print("{}\n", tune::to_json(opened.report()));
      return 0;
    }
    const bool repeats = options.every > 0;
    if (repeats && terminal_columns(STDOUT_FILENO) > 0) fmt::print("\x1b[H\x1b[2J");
    fmt::print("{}", tune::describe(opened.report(), options.rows));
    std::fflush(stdout);
    if (!repeats) return 0;
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(options.every);
    while (std::chrono::steady_clock::now() < end) {
      if (interrupt.signal() != 0) return 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    fmt::print("\n");
  }
}

const tune::Trial& chosen(const Options& options, const Opened& opened) {
  const auto& trials = opened.history.trials();
  if (options.trial >= 0) {
    if (static_cast<std::size_t>(options.trial) >= trials.size()) {
      throw user_error("--trial {}: the study has trials 0 to {}", options.trial,
                       static_cast<int>(trials.size()) - 1);
    }
    return opened.history.trial(options.trial);
  }
  const std::vector<int> best =
      tune::best_trials(opened.history, opened.study->objectives(), opened.study->max_steps());
  if (best.empty()) {
    throw user_error("no trial of {} has shown anything yet; `atoll tune resume {}` goes on",
                     options.directory, options.directory);
  }
  if (best.size() > 1) {
    throw user_error(
        "{} trials of {} beat each other in one objective or another; choose one with "
        "--trial (`atoll tune show {}` lists them)",
        best.size(), options.directory, options.directory);
  }
  return opened.history.trial(best.front());
}

int best(const Options& options) {
  const Opened opened(options.directory);
  const tune::Trial& trial = chosen(options, opened);
  const std::string recipe = tune::tuned_recipe(*opened.study, trial);
  if (options.write.empty()) {
    fmt::print("{}", recipe);
    return 0;
  }
  if (path_exists(options.write)) {
    throw user_error("--write {} is there already; remove it or name another file", options.write);
  }
  write_file(options.write, recipe);
  fmt::print("{}: trial {}; {}\n", options.write, trial.number, tune::settings_text(trial));
  return 0;
}

int plot(const Options& options) {
  const Opened opened(options.directory);
  const fs::path out =
      options.out.empty() ? fs::path(options.directory) / "plots" : fs::path(options.out);
  for (const fs::path& path : tune::write_plots(opened.report(), out)) {
    fmt::print("{}\n", path.string());
  }
  return 0;
}

int check_coordinates(const Options& options, const Invocation& invocation) {
  const train::Recipe recipe(options.recipe, invocation.overrides);
  std::vector<tune::CoordinateCheck> checks;
  for (const char* parametrisation : {"mup", "standard"}) {
    checks.push_back(
        tune::check_coordinates(recipe.config(), parametrisation, options.coordinates));
    fmt::print("{}\n", tune::describe(checks.back()));
    std::fflush(stdout);
  }
  if (!options.out.empty()) {
    const fs::path out = options.out;
    std::error_code failure;
    fs::create_directories(out, failure);
    if (failure) throw io_error("cannot make", out, failure.value());
    write_file(out / "coordcheck.csv", tune::to_csv(checks));
    write_file(out / "coordcheck.svg", tune::to_svg(checks));
    fmt::print("{}\n{}\n", (out / "coordcheck.csv").string(), (out / "coordcheck.svg").string());
  }
  const double slope = checks.front().largest_slope();
  const bool holds = slope <= options.limit;
  fmt::print("largest slope: mup {:.3f}, standard {:.3f}; mup's {} the limit of {}\n", slope,
             checks.back().largest_slope(), holds ? "keeps" : "is above", options.limit);
  return holds ? 0 : 1;
}

std::optional<fs::path> path_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

int work(const Options& options) {
  tune::WorkOptions work = options.work;
  work.identity = path_of(options.identity);
  work.secret = path_of(options.secret);
  if (work.name.empty()) work.name = launch::this_host();
  work.program = launch::this_program();
  work.version = ATOLL_VERSION;
  const int signal = tune::work(work);
  return signal == 0 ? 0 : 128 + signal;
}

void add_work_options(ArgumentParser& part, Options& options) {
  tune::WorkOptions& work = options.work;
  part.add_option("address", work.address, "HOST:PORT of the tuner (study.listen)").required();
  part.add_option("--dir", work.dir, "Where it keeps what its trials write; made if missing")
      .required();
  part.add_option("--slots", work.slots, "Trials at once").range(1, 1024).show_default();
  part.add_option("--threads", work.threads, "CPU threads of each; 0: its share")
      .range(0, 65536)
      .show_default();
  part.add_option("--name", work.name, "What the tuner is to call it (this machine's name)");
  part.add_option("--patience", work.patience_s, "Seconds without the tuner until it gives up")
      .range(0.1, 1e9)
      .show_default();
  part.add_option("--identity", options.identity,
                  "Directory with its certificate (atoll certs issue); needed unless the tuner is "
                  "on this machine");
  part.add_option("--secret", options.secret,
                  "The file that study.secret names; instead of --identity");
}

ArgumentParser add_part(ArgumentParser& parser, const char* name, const char* summary,
                        Options& options) {
  ArgumentParser part = parser.add_subcommand(name, summary);
  part.add_option("directory", options.directory, "Of a study (study.dir)").required();
  return part;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.require_subcommand(0, 1);
  parser.add_option("study", options->study, "TOML file: recipe, space, budget, objective");
  ArgumentParser resume_part =
      add_part(parser, "resume", "Go on with a study that was stopped or killed.", *options);
  add_watch_flags(parser, options->watch);
  add_watch_flags(resume_part, options->watch);
  add_metrics_flags(parser, options->metrics);
  add_metrics_flags(resume_part, options->metrics);
  ArgumentParser show_part = add_part(parser, "show", "Show a study's trials.", *options);
  show_part.add_option("--rows", options->rows, "trials to show; 0: all")
      .range(0, 1'000'000)
      .show_default();
  show_part.add_option("--every", options->every, "show them again after so many seconds")
      .range(0.1, 86400.0);
  show_part.add_flag("--json", options->json,
                     "all as JSON: trials, curves, importance, who was forked from whom");
  ArgumentParser best_part =
      add_part(parser, "best", "Give the recipe of the best trial.", *options);
  best_part.add_option("--trial", options->trial, "this trial instead of the best")
      .range(0, 1'000'000'000);
  best_part.add_option("--write", options->write, "file to write it to");
  ArgumentParser plot_part = add_part(
      parser, "plot", "Draw importance, settings, learning curves and the family of a population.",
      *options);
  plot_part.add_option("--out", options->out, "directory of the SVG files; else plots/ in it");
  ArgumentParser work_part = parser.add_subcommand(
      "work", "Train trials that a study on another machine leases to this one.");
  add_work_options(work_part, *options);
  ArgumentParser check_part = parser.add_subcommand(
      "coordcheck",
      "Check that what training changes in activations does not grow with width under muP.");
  check_part.add_option("recipe", options->recipe, "TOML file of a run").required();
  check_part
      .add_option("--widths", options->coordinates.widths, "hidden sizes, with commas between")
      .delimiter(',')
      .range(1, 1 << 20)
      .show_default();
  check_part.add_option("--steps", options->coordinates.steps, "steps of training at each width")
      .range(1, 10'000)
      .show_default();
  check_part.add_option("--seeds", options->coordinates.seeds, "seeds that are averaged over")
      .range(1, 1000)
      .show_default();
  check_part.add_option("--limit", options->limit, "slope of muP above which it fails")
      .show_default();
  check_part.add_option("--out", options->out, "directory of the table and the picture");
  return [=](const Invocation& invocation) {
    if (check_part.is_parsed()) return check_coordinates(*options, invocation);
    const bool trains =
        resume_part.is_parsed() || (!show_part.is_parsed() && !best_part.is_parsed() &&
                                    !plot_part.is_parsed() && !work_part.is_parsed());
    if (!trains && !invocation.overrides.empty()) {
      throw user_error(
          "only `atoll tune STUDY`, `atoll tune resume` and `atoll tune coordcheck` take settings, "
          "and {} is one",
          invocation.overrides.front());
    }
    // Trials are runs of their own, whatever has started their tuner or worker.
    launch::forget_rank_environment();
    if (resume_part.is_parsed()) return resume(*options, invocation);
    if (work_part.is_parsed()) return work(*options);
    if (show_part.is_parsed()) return show(*options);
    if (best_part.is_parsed()) return best(*options);
    if (plot_part.is_parsed()) return plot(*options);
    return start(*options, invocation);
  };
}

}  // namespace

Command tune_command() {
  return {.name = "tune",
          .summary = "Search for better settings over many runs of a recipe.",
          .example =
              "  atoll tune study.toml\n"
              "  atoll tune study.toml --budget.trials=40 --study.workers=2\n"
              "  atoll tune resume studies/first\n"
              "  atoll tune work alpha:7420 --dir=work --identity=identities/beta\n"
              "  atoll tune show studies/first --every 5\n"
              "  atoll tune best studies/first --write tuned.toml\n"
              "  atoll tune plot studies/first\n"
              "  atoll tune coordcheck recipes/kjv-demo.toml --widths=64,128,256 --out=coordcheck",
          .stray =
              "one study file is all that it takes, or a part: resume, show, best, plot, work or "
              "coordcheck",
          .takes_overrides = true,
          .add = add,
          .memory_advice = train::kTrainingMemoryAdvice};
}

}  // namespace atl::cli
