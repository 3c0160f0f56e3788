#include "atoll/launch/children.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "atoll/base/log.h"
#include "atoll/base/quantity.h"

namespace atl::launch {

namespace {

// How long one may take to save that was told to end because another has failed. Whoever sends a
// signal decides himself how long he waits.
constexpr std::chrono::seconds kGrace{60};
// The pause between the end of a process and its next start.
constexpr std::chrono::milliseconds kRestartAfter{300};

}  // namespace

void Children::add(ChildPlan plan) {
  entries_.emplace_back();
  entries_.back().plan = std::move(plan);
}

void Children::start(Entry& entry) {
  entry.child = std::make_unique<Child>(ChildOptions{.argv = entry.plan.argv,
                                                     .shows_output = entry.plan.shows_output,
                                                     .shows_errors = false,
                                                     .death_signal = entry.plan.death_signal});
  entry.lines = {};
}

// Prints the lines of the first one only: the others print much the same.
void Children::say(Entry& entry, std::string_view line) {
  constexpr std::string_view kError = "error: ";
  const bool is_error = line.starts_with(kError);
  entry.last_line = is_error ? line.substr(kError.size()) : line;
  if (is_error) return;  // told when it has ended
  const bool is_first = entry.plan.shows_output;
  if (!is_first && line.starts_with("info: ")) return;
  const std::string text =
      is_first ? fmt::format("{}\n", line) : fmt::format("[{}] {}\n", entry.plan.name, line);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void Children::ended(Entry& entry, int status) {
  entry.lines.read(entry.child->errors(), [&](std::string_view line) { say(entry, line); });
  entry.lines.finish([&](std::string_view line) { say(entry, line); });
  const pid_t pid = entry.child->pid();
  entry.child.reset();
  const bool has_exited = WIFEXITED(status);
  const int exit_code = has_exited ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const bool is_mistake = has_exited && exit_code == 2;
  if (has_exited && exit_code == 128 + SIGPIPE && signal_ == 0 && !failure_) {
    signal_ = SIGPIPE;  // nobody reads the output: all end, as at a signal
    stop(SIGTERM);
  }
  const bool is_expected = signal_ != 0 || failure_ || ends_servers_;
  if (exit_code == 0 || (is_expected && (!entry.plan.is_server || ends_servers_))) {
    entry.is_done = true;
    return;
  }
  const std::string how = has_exited ? fmt::format("ended with exit code {}", exit_code)
                                     : fmt::format("was killed by signal {}", WTERMSIG(status));
  if (is_mistake || entry.restarts == max_restarts_) {
    entry.is_done = true;
    if (!failure_) {
      failure_ = make_error(
          is_mistake ? ErrorKind::kUser : ErrorKind::kPeer, "{} {}{}: {}", entry.plan.name, how,
          is_mistake ? "" : fmt::format(" after {}", counted(entry.restarts, "restart")),
          entry.last_line.empty() ? "it said nothing" : entry.last_line);
    }
    stop(SIGTERM);
    return;
  }
  ++entry.restarts;
  entry.starts_at = Clock::now() + kRestartAfter;
  log::warning("{} (pid {}) {}{}; starting it again ({} of {})", entry.plan.name, pid, how,
               has_exited ? ": " + entry.last_line : "", entry.restarts, max_restarts_);
}

// Asks all but servers to end; those that wait for their next start do not begin any more.
void Children::ask_to_end(int signal) {
  if (std::exchange(is_ending_, true)) return;  // a second one is another wish
  for (Entry& entry : entries_) {
    if (!entry.child && !entry.plan.is_server) entry.is_done = true;
  }
  pass_on(signal);
}

void Children::pass_on(int signal) const {
  for (const Entry& entry : entries_) {
    if (entry.child && !entry.plan.is_server) entry.child->signal(signal);
  }
}

void Children::stop(int signal) {
  kill_at_ = Clock::now() + kGrace;
  ask_to_end(signal);
}

void Children::take(int signal) {
  if (signals_.only_saves(signal)) return pass_on(signal);
  if (signal_ != 0 && signal_ != SIGPIPE) kill_at_ = Clock::now();  // it came again
  signal_ = signal;
  ask_to_end(signal);
}

// When nobody is left whom they could serve.
void Children::end_servers() {
  const bool all = std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.is_done || entry.plan.is_server;
  });
  if (!all || ends_servers_) return;
  ends_servers_ = true;
  if (kill_at_ == Clock::time_point()) kill_at_ = Clock::now() + kGrace;
  for (Entry& entry : entries_) {
    if (!entry.plan.is_server) continue;
    if (entry.child) {
      entry.child->signal(SIGTERM);
    } else {
      entry.is_done = true;
    }
  }
}

bool Children::all_done() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.is_done; });
}

void Children::wait() {
  std::vector<pollfd> fds = {{.fd = signals_.fd(), .events = POLLIN}};
  for (Entry& entry : entries_) {
    if (!entry.child) continue;
    fds.push_back({.fd = entry.child->pid_fd(), .events = POLLIN});
    if (entry.child->errors().open()) {
      fds.push_back({.fd = entry.child->errors().get(), .events = POLLIN});
    }
  }
  ::poll(fds.data(), fds.size(), 100);
  for (int signal = signals_.next(); signal != 0; signal = signals_.next()) take(signal);
}

int Children::run(const std::function<std::optional<Error>()>& failure) {
  while (!all_done()) {
    const Clock::time_point now = Clock::now();
    for (Entry& entry : entries_) {
      if (!entry.child && !entry.is_done && now >= entry.starts_at) start(entry);
    }
    wait();
    for (Entry& entry : entries_) {
      if (!entry.child) continue;
      if (entry.child->errors().open()) {
        entry.lines.read(entry.child->errors(), [&](std::string_view line) { say(entry, line); });
      }
      int status = 0;
      if (entry.child->reap(status)) ended(entry, status);
      const bool is_late = kill_at_ != Clock::time_point() && Clock::now() > kill_at_;
      if (entry.child && is_late) entry.child->kill();
    }
    end_servers();
    if (const auto broken = failure(); broken && !failure_) {
      failure_ = *broken;
      stop(SIGTERM);
    }
  }
  if (failure_) throw Error(*failure_);
  return signal_ != 0 ? 128 + signal_ : 0;
}

std::vector<std::string> train_words(const std::string& recipe,
                                     const std::vector<std::string>& overrides,
                                     const std::vector<std::string>& left_out) {
  const TrainCall call = train_call(recipe, overrides);
  std::vector<std::string> argv = {call.program, "train"};
  for (const std::string& word : call.arguments) {
    const bool is_set = std::any_of(
        left_out.begin(), left_out.end(),
        [&word](const std::string& key) { return word.starts_with(fmt::format("--{}=", key)); });
    if (!is_set) argv.push_back(word);
  }
  return argv;
}

}  // namespace atl::launch
