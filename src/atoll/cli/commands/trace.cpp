#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands.h"
#include "atoll/train/progress/interrupt.h"
#include "atoll/train/report/trace_request.h"
#include "atoll/watch/run_reader.h"

namespace atl::cli {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string run;
  std::int64_t steps = 5;
  std::string out;
};

// One run that was asked.
struct Asked {
  std::string name;
  fs::path dir;
  std::string id;
};

Asked ask(const std::string& name, const fs::path& dir, std::int64_t steps) {
  if (!watch::is_running(dir)) {
    throw user_error(
        "nothing trains in {} on this machine; a trace of the first steps is made by `atoll train "
        "RECIPE --trace FILE`",
        dir.string());
  }
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  Asked asked = {name, dir, fmt::format("{}-{}", now, ::getpid())};
  train::ask_for_trace(dir, {.id = asked.id, .steps = steps});
  return asked;
}

// Waits until the trace is there; returns the signal that came instead, or 0.
int wait_for(const Asked& asked, const train::InterruptGuard& interrupt) {
  constexpr std::chrono::milliseconds kLookEvery{20};
  const fs::path path = train::trace_path(asked.dir, asked.id);
  while (!path_exists(path)) {
    if (interrupt.signal() != 0) {
      train::take_back_request(asked.dir);
      return interrupt.signal();
    }
    // Looked at twice: a run writes its trace, and ends.
    if (!watch::is_running(asked.dir) && !path_exists(path)) {
      train::take_back_request(asked.dir);
      throw make_error(ErrorKind::kPeer, "{} ended before it had written the trace",
                       asked.dir.string());
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  return 0;
}

int run(const Options& options) {
  if (options.steps < 1 || options.steps > 100'000) {
    throw user_error("--steps={}: from 1 to 100,000", options.steps);
  }
  const auto runs = watch::runs_at(options.run);
  if (runs.size() > 1 && !options.out.empty()) {
    throw user_error(
        "{} has {}, whose clocks are not aligned with each other: each writes a trace of its own, "
        "and --out names one file; name one of them, such as {}",
        options.run, counted(std::ssize(runs), "island"), runs.front().second.string());
  }
  const train::InterruptGuard interrupt;
  std::vector<Asked> asked;
  for (const auto& [name, dir] : runs) asked.push_back(ask(name, dir, options.steps));
  log::info("waiting for {} of {}", counted(options.steps, "step"), options.run);
  for (const Asked& one : asked) {
    if (const int signal = wait_for(one, interrupt)) return 128 + signal;
    fs::path path = train::trace_path(one.dir, one.id);
    if (!options.out.empty()) {
      write_file(options.out, read_file(path, kMaxLogBytes));
      path = options.out;
    }
    fmt::print("{}\n", path.string());
  }
  log::info("chrome://tracing and ui.perfetto.dev open it");
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("run", options->run, "Directory of a run that trains on this machine")
      .required();
  parser.add_option("--steps", options->steps, "Steps in the trace").show_default();
  parser.add_option("--out", options->out, "File to copy it to");
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command trace_command() {
  return {.name = "trace",
          .summary = "Ask a run that trains for a trace of its next steps, on all ranks.",
          .example = "  atoll trace runs/kjv-demo --steps 5",
          .stray = "one run is all that it takes; the file is given with --out",
          .add = add};
}

}  // namespace atl::cli
