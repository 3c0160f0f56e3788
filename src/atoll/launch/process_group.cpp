#include "atoll/launch/process_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "atoll/base/terminal.h"
#include "atoll/launch/mpirun.h"

namespace atl::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kTold =
    "error: ";  // how a process begins its line that ends before it is a rank

struct Running {
  RankProcess spec;
  std::unique_ptr<WatchedProcess> process;
  std::string last_line;

  explicit Running(const RankProcess& what) : spec(what), process(start_process(what)) {}
};

class RunningGroup {
 public:
  RunningGroup(const std::vector<RankProcess>& processes, const GroupOptions& options,
               SignalFd& signals)
      : options_(options), signals_(signals), asks_at_(Clock::now() + options.ask_every) {
    for (const RankProcess& spec : processes) ranks_.emplace_back(spec);
  }

  GroupEnd run() {
    while (num_running() > 0) {
      wait();
      while (const int signal = signals_.next()) pass_on(signal);
      for (Running& rank : ranks_) {
        rank.process->listen([&](std::string_view line) { hear(rank, line); });
      }
      reap();
      if (options_.policy != nullptr && !is_over_) keep();
      keep_time();
    }
    return std::move(end_);
  }

 private:
  std::size_t num_running() const {
    return static_cast<std::size_t>(std::count_if(
        ranks_.begin(), ranks_.end(), [](const Running& rank) { return rank.process->running(); }));
  }

  // Returns when something has happened or is due.
  void wait() {
    std::vector<pollfd> watched = {{.fd = signals_.fd(), .events = POLLIN}};
    for (const Running& rank : ranks_) rank.process->watch(watched);
    std::optional<Clock::time_point> due = kills_at_;
    const bool asks = options_.wants_to_stop || options_.policy != nullptr;
    if (!due && asks && end_.stop_signal == 0) due = asks_at_;
    int timeout_ms = -1;
    if (due) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - Clock::now());
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3600 * 1000));
    }
    ::poll(watched.data(), watched.size(), timeout_ms);
  }

  void reap() {
    for (Running& rank : ranks_) {
      const std::optional<ProcessEnd> end =
          rank.process->reap([&](std::string_view line) { hear(rank, line); });
      if (end) note_end(rank, *end);
    }
  }

  void hear(Running& rank, std::string_view line) {
    if (const std::optional<RankReport> report = parse_report(line)) {
      note(*report);
      return;
    }
    if (rank.spec.reach == Reach::kMpirun && mpirun_.takes(line)) return;
    if (!line.empty()) rank.last_line = line.substr(line.starts_with(kTold) ? kTold.size() : 0);
    show(rank, line);
  }

  void note(const RankReport& report) {
    if (report.pid > 0) {
      pids_[report.rank] = static_cast<pid_t>(report.pid);
    } else if (report.begun >= 0) {
      end_.begun_at = std::max(end_.begun_at, report.begun);
    } else if (report.step >= 0) {
      end_.step = std::max(end_.step, report.step);
    } else {
      reported_.push_back(report);
    }
  }

  void show(const Running& rank, std::string_view line) {
    // The last line of a program that fails is reported with its end.
    if (line.starts_with(kTold) || line.starts_with("ssh: ")) return;
    const int number = rank.spec.rank;
    const int now = options_.policy == nullptr ? number : options_.policy->rank_of(number);
    if (now == 0) {
      put_error(fmt::format("{}\n", line));
      return;
    }
    if (line.empty() || line.starts_with("info: ") || line.starts_with("debug: ")) return;
    constexpr std::size_t kRemembered = 1000;
    if (shown_.size() < kRemembered && !shown_.insert(std::string(line)).second) return;
    put_error(fmt::format("[{}] {}\n", now < 0 ? "joining" : fmt::format("rank {}", now), line));
  }

  void note_end(Running& rank, const ProcessEnd& how) {
    RankEnd end = {.rank = rank.spec.rank,
                   .pid = rank.process->pid(),
                   .host = rank.spec.host,
                   .exit_code = how.exit_code,
                   .signal = how.signal,
                   .ended_by_us = killed_,
                   .has_lost_agent = how.is_lost,
                   .last_line = rank.last_line};
    if (rank.spec.reach == Reach::kMpirun) {
      note_end_of_mpirun(std::move(end));
    } else {
      for (const RankReport& report : reported_) {
        if (report.rank == end.rank) end.report = report;
      }
      if (options_.policy != nullptr && is_survived(end)) return;
      end_.ranks.push_back(std::move(end));
    }
    if (failed(end_.ranks.back())) end_soon();
  }

  bool failed(const RankEnd& end) const {
    if (end.signal != 0) return end.signal != end_.stop_signal;
    return end.exit_code != 0 && !is_stop_code(end.exit_code);
  }

  // Whether the policy lets the others go on.
  bool is_survived(const RankEnd& end) {
    ElasticPolicy& policy = *options_.policy;
    const bool is_whole = !is_over_ && !kills_at_ && end_.stop_signal == 0 && end_.ranks.empty();
    if (is_whole && failed(end) && policy.goes_on_without(end, end_.step)) return true;
    return policy.rank_of(end.rank) < 0;
  }

  void keep() {
    const auto is_rank = [this](const Running& rank) {
      return rank.process->running() && options_.policy->rank_of(rank.spec.rank) >= 0;
    };
    if (std::none_of(ranks_.begin(), ranks_.end(), is_rank)) {
      is_over_ = true;  // there is nothing left to join
      for (Running& rank : ranks_) rank.process->kill();
      return;
    }
    if (Clock::now() < asks_at_ || kills_at_ || end_.stop_signal != 0 || !end_.ranks.empty()) {
      return;
    }
    for (const RankProcess& spec : options_.policy->joining(end_.step)) ranks_.emplace_back(spec);
  }

  void end_soon() {
    if (!kills_at_) kills_at_ = Clock::now() + options_.grace;
  }

  // The ranks of mpirun are known from their reports and from mpirun's message about a dead rank.
  void note_end_of_mpirun(RankEnd end) {
    tell_as_asked(end);
    if (std::optional<RankEnd> dead = mpirun_.dead_rank()) {
      if (dead->pid == 0) dead->pid = pids_[dead->rank];  // Open MPI 4 often says 0
      tell_as_asked(*dead);
      end_.ranks.push_back(*dead);
    }
    for (const RankReport& report : reported_) {
      end_.ranks.push_back({.rank = report.rank, .exit_code = 1, .report = report});
    }
    if (!end_.ranks.empty()) return;
    if (end.exit_code != 0 && end.last_line.empty()) end.last_line = mpirun_.text();
    end_.ranks.push_back(std::move(end));
  }

  // A signal must not be passed to mpirun before its ranks handle it: it would kill the ranks that
  // are starting, and later ranks would not get it.
  bool is_ready(const RankProcess& spec) const {
    return spec.reach != Reach::kMpirun || pids_.size() >= static_cast<std::size_t>(spec.num_ranks);
  }

  // Ranks under mpirun are stopped by other signals than the one that came.
  void tell_as_asked(RankEnd& end) const {
    if (end_.stop_signal == 0 || end.ended_by_us) return;
    for (const int sent : {SIGUSR1, SIGUSR2, SIGINT, SIGTERM}) {
      if (end.signal == sent) end.signal = end_.stop_signal;
      if (end.exit_code == 128 + sent) end.exit_code = 128 + end_.stop_signal;
    }
    // An mpirun that was told to end exits with 1.
    if (has_ended_mpirun_ && end.exit_code != 0) end.exit_code = 128 + end_.stop_signal;
  }

  void pass_on(int signal) {
    if (signals_.only_saves(signal)) {
      for (Running& rank : ranks_) {
        const bool is_mpirun = rank.spec.reach == Reach::kMpirun;
        const bool has_begun = is_mpirun ? is_ready(rank.spec) : pids_.count(rank.spec.rank) > 0;
        if (has_begun) rank.process->signal(signal, /*again=*/false);
      }
      return;
    }
    // Where its owner wanted the ranks to stop they do so already, and were asked but once.
    const bool is_known = std::exchange(end_.was_wanted, false);
    const bool again = end_.stop_signal != 0 && !is_known;
    end_.stop_signal = signal;
    if (is_known) return;
    for (Running& rank : ranks_) {
      const bool at_once = again || !is_ready(rank.spec);
      const bool is_mpirun = rank.spec.reach == Reach::kMpirun;
      has_ended_mpirun_ = has_ended_mpirun_ || (at_once && is_mpirun);
      // mpirun passes SIGTERM on as SIGUSR1, which its ranks may take for another wish.
      const bool is_taken = is_mpirun && signals_.only_saves(SIGUSR1);
      rank.process->signal(is_taken ? SIGINT : signal, at_once);
    }
    if (again) end_soon();
  }

  void keep_time() {
    const Clock::time_point now = Clock::now();
    if (kills_at_ && now >= *kills_at_) {
      kill_all();
      return;
    }
    if (now < asks_at_) return;
    asks_at_ = now + options_.ask_every;
    if (kills_at_ || !options_.wants_to_stop || end_.stop_signal != 0) return;
    if (!options_.wants_to_stop()) return;
    pass_on(SIGTERM);
    end_.was_wanted = true;
  }

  void kill_all() {
    // Ranks that ended before the kill are reaped first, so that they are not reported as hanging.
    reap();
    killed_ = true;
    for (Running& rank : ranks_) rank.process->kill();
    kills_at_ = Clock::now() + options_.grace;
  }

  const GroupOptions& options_;
  SignalFd& signals_;
  std::vector<Running> ranks_;
  MpirunMessages mpirun_;
  std::vector<RankReport> reported_;
  std::map<int, pid_t> pids_;  // by rank
  std::set<std::string> shown_;
  GroupEnd end_;
  std::optional<Clock::time_point> kills_at_;
  Clock::time_point asks_at_;
  bool is_over_ = false;  // no rank runs any more
  bool killed_ = false;
  bool has_ended_mpirun_ = false;  // itself, rather than asked its ranks to save
};

}  // namespace

SignalFd::SignalFd() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : kStopSignals) {
    if (!is_ignored(signal)) ::sigaddset(&wanted, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  fd_ = Fd(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
}

SignalFd::~SignalFd() {
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int SignalFd::next() {
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (only_saves(signal)) return signal;
    const StopWishes::Wish wish = wishes_.take(signal, StopWishes::Clock::now());
    if (wish != StopWishes::Wish::kNothing) return signal;
  }
  return 0;
}

GroupEnd run_group(const std::vector<RankProcess>& processes, const GroupOptions& options,
                   SignalFd& signals) {
  return RunningGroup(processes, options, signals).run();
}

}  // namespace atl::launch
