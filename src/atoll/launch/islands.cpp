#include "atoll/launch/islands.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/machine.h"
#include "atoll/base/process.h"
#include "atoll/base/quantity.h"
#include "atoll/island/coordinator/service.h"
#include "atoll/launch/process_group.h"
#include "atoll/launch/rank_processes.h"
#include "atoll/train/recipe.h"

namespace atl::launch {

namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

// How long an island that was told to end may take to save.
constexpr std::chrono::seconds kGrace{60};
// The pause between the end of an island's process and its next start.
constexpr std::chrono::milliseconds kRestartAfter{300};

constexpr const char* kSetForEach[] = {"run.dir", "outer.islands", "device.threads"};

// One island: a process, and after its death the next one.
struct Island {
  std::string name;
  std::vector<std::string> argv;
  std::unique_ptr<Child> child;
  LineReader lines;
  std::string last_line;
  int restarts = 0;
  bool is_done = false;
  int exit_code = 0;
  Clock::time_point starts_at = {};
};

class Islands {
 public:
  explicit Islands(const IslandsPlan& plan);
  int run();

 private:
  std::vector<std::string> words(const IslandsPlan& plan, const train::Recipe& recipe,
                                 int number) const;
  void start(Island& island);
  void wait();
  void say(Island& island, std::string_view line);
  void ended(Island& island, int status);
  void stop(int signal);
  bool all_done() const;

  IslandsPlan plan_;
  SignalFd signals_;  // before any thread is made
  fs::path secret_;   // a file, by which the run's processes know each other
  std::unique_ptr<island::CoordinatorService> coordinator_;
  std::vector<Island> islands_;
  int signal_ = 0;                // that ends the run
  std::optional<Error> failure_;  // that ends the run
  Clock::time_point kill_at_ = {};
};

Islands::Islands(const IslandsPlan& plan) : plan_(plan) {
  const train::Recipe recipe(plan.recipe, plan.overrides);
  const fs::path dir = recipe.config().run.dir;
  secret_ = dir / "coordinator" / "secret";
  coordinator_ = std::make_unique<island::CoordinatorService>(island::ServiceOptions{
      .dir = dir / "coordinator", .listen = "127.0.0.1:0", .secret = secret_});
  for (int i = 1; i <= plan.num_islands; ++i) {
    Island island;
    island.name = fmt::format("island-{}", i);
    island.argv = words(plan, recipe, i);
    islands_.push_back(std::move(island));
  }
}

std::vector<std::string> Islands::words(const IslandsPlan& plan, const train::Recipe& recipe,
                                        int number) const {
  const TrainCall call = train_call(plan.recipe, plan.overrides);
  std::vector<std::string> argv = {call.program, "train"};
  // Overrides of settings that are set for each island below are left out.
  for (const std::string& word : call.arguments) {
    const bool is_set = std::any_of(
        std::begin(kSetForEach), std::end(kSetForEach),
        [&word](const char* key) { return word.starts_with(fmt::format("--{}=", key)); });
    if (!is_set) argv.push_back(word);
  }
  const std::string name = fmt::format("island-{}", number);
  const fs::path dir = recipe.config().run.dir;
  const auto set = [&](const std::string& key, const std::string& value) {
    argv.push_back(fmt::format("--{}={}", key, value));
  };
  set("island.coordinator", coordinator_->address());
  set("island.secret", secret_.string());
  set("island.name", name);
  set("outer.islands", std::to_string(plan.num_islands));
  set("run.dir", (dir / "islands" / name).string());
  if (recipe.config().device.threads == 0) {
    set("device.threads", std::to_string(std::max(1, available_cpus() / plan.num_islands)));
  } else {
    set("device.threads", std::to_string(recipe.config().device.threads));
  }
  return argv;
}

void Islands::start(Island& island) {
  const bool is_first = &island == &islands_.front();
  island.child = std::make_unique<Child>(ChildOptions{.argv = island.argv,
                                                      .shows_output = is_first,
                                                      .shows_errors = false,
                                                      .death_signal = SIGTERM});
  island.lines = {};
}

// Prints the lines of the first island only: the other islands print much the same.
void Islands::say(Island& island, std::string_view line) {
  constexpr std::string_view kError = "error: ";
  const bool is_error = line.starts_with(kError);
  island.last_line = is_error ? line.substr(kError.size()) : line;
  if (is_error) return;  // told when it has ended
  const bool is_first = &island == &islands_.front();
  if (!is_first && line.starts_with("info: ")) return;
  const std::string text =
      is_first ? fmt::format("{}\n", line) : fmt::format("[{}] {}\n", island.name, line);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void Islands::ended(Island& island, int status) {
  island.lines.read(island.child->errors(), [&](std::string_view line) { say(island, line); });
  island.lines.finish([&](std::string_view line) { say(island, line); });
  const pid_t pid = island.child->pid();
  island.child.reset();
  const bool has_exited = WIFEXITED(status);
  island.exit_code = has_exited ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const bool is_mistake = has_exited && island.exit_code == 2;
  if (has_exited && island.exit_code == 128 + SIGPIPE && signal_ == 0 && !failure_) {
    signal_ = SIGPIPE;  // nobody reads the output: all islands end, as at a signal
    stop(SIGTERM);
  }
  if (island.exit_code == 0 || signal_ != 0 || failure_) {
    island.is_done = true;
    return;
  }
  const std::string how = has_exited ? fmt::format("ended with exit code {}", island.exit_code)
                                     : fmt::format("was killed by signal {}", WTERMSIG(status));
  if (is_mistake || island.restarts == plan_.max_restarts) {
    island.is_done = true;
    failure_ = make_error(
        is_mistake ? ErrorKind::kUser : ErrorKind::kPeer, "{} {}{}: {}", island.name, how,
        is_mistake ? "" : fmt::format(" after {}", counted(island.restarts, "restart")),
        island.last_line.empty() ? "it said nothing" : island.last_line);
    stop(SIGTERM);
    return;
  }
  ++island.restarts;
  island.starts_at = Clock::now() + kRestartAfter;
  log::warning("{} (pid {}) {}{}; starting it again ({} of {})", island.name, pid, how,
               has_exited ? ": " + island.last_line : "", island.restarts, plan_.max_restarts);
}

void Islands::stop(int signal) {
  kill_at_ = Clock::now() + kGrace;
  for (Island& island : islands_) {
    if (island.child) {
      island.child->signal(signal);
    } else {
      island.is_done = true;
    }
  }
}

bool Islands::all_done() const {
  return std::all_of(islands_.begin(), islands_.end(),
                     [](const Island& island) { return island.is_done; });
}

void Islands::wait() {
  std::vector<pollfd> fds = {{.fd = signals_.fd(), .events = POLLIN}};
  for (Island& island : islands_) {
    if (!island.child) continue;
    fds.push_back({.fd = island.child->pid_fd(), .events = POLLIN});
    if (island.child->errors().open()) {
      fds.push_back({.fd = island.child->errors().get(), .events = POLLIN});
    }
  }
  ::poll(fds.data(), fds.size(), 100);
  for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
    if (signal_ != 0) kill_at_ = Clock::now();  // a second signal ends them at once
    signal_ = signal;
    if (kill_at_ == Clock::time_point() || kill_at_ > Clock::now()) stop(signal);
  }
}

int Islands::run() {
  log::info(
      "coordinator at {}: {} on this machine; more may join with "
      "--island.coordinator={} --island.secret={} --island.name=NAME",
      coordinator_->address(), counted(plan_.num_islands, "island"), coordinator_->address(),
      secret_.string());
  while (!all_done()) {
    const Clock::time_point now = Clock::now();
    for (Island& island : islands_) {
      if (!island.child && !island.is_done && now >= island.starts_at) start(island);
    }
    wait();
    for (Island& island : islands_) {
      if (!island.child) continue;
      if (island.child->errors().open()) {
        island.lines.read(island.child->errors(),
                          [&](std::string_view line) { say(island, line); });
      }
      int status = 0;
      if (island.child->reap(status)) ended(island, status);
      const bool is_late = kill_at_ != Clock::time_point() && Clock::now() > kill_at_;
      if (island.child && is_late) island.child->kill();
    }
    if (const auto broken = coordinator_->failure(); broken && !failure_) {
      failure_ = *broken;
      stop(SIGTERM);
    }
  }
  coordinator_->stop();
  if (failure_) throw Error(*failure_);
  return signal_ != 0 ? 128 + signal_ : 0;
}

}  // namespace

int run_islands(const IslandsPlan& plan) {
  return Islands(plan).run();
}

}  // namespace atl::launch
