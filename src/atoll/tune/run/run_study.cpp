#include "atoll/tune/run/run_study.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/base/threads/thread_pool.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/corpus/missing_text.h"
#include "atoll/train/progress/interrupt.h"
#include "atoll/tune/lease/lease_server.h"
#include "atoll/tune/run/starts.h"
#include "atoll/tune/trial/trial_process.h"
#include "atoll/tune/trial/trial_run.h"
#include "atoll/tune/trial/tuner.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 200;        // a signal that comes just before poll() waits so long
constexpr int kMaxAttempts = 3;     // of a trial that dies without a word on its settings
constexpr int kRefusalsToStop = 3;  // before any result: the study itself is wrong

// Tokens, once for all trials, where no trial has others.
void prepare_data(const Study& study) {
  const auto& dimensions = study.space().dimensions();
  const bool differs = std::any_of(dimensions.begin(), dimensions.end(),
                                   [](const Dimension& d) { return d.key.starts_with("data."); });
  if (study.recipe().config().data.text.empty() || differs) return;
  train::require_texts(study.recipe().config(), study.recipe().settings());
  train::prepare_corpus(train::corpus_options(study.recipe().config()));
}

class Runner {
 public:
  Runner(const Study& study, std::string program, const StudyWatcher& watcher)
      : study_(study),
        program_(std::move(program)),
        watcher_(watcher),
        store_(study.dir(), content(study), [&study] { write_files(study); }) {
    std::vector<Event> past;
    for (const LoggedEvent& logged : store_.past()) past.push_back(logged.event);
    Problem problem = problem_of(study);
    for (const Start& start : stored_starts(study, study.dir() / "starts.json")) {
      problem.starts.push_back(start.units);
    }
    tuner_.emplace(std::move(problem), past, [this](std::span<const Event> events) {
      store_.append(events);
      link_forks(events);
      has_changed_ = true;
    });
    // Those whose tuner was killed before it had linked them. No donor has gone on since: its
    // process ends with the tuner.
    for (const Trial& trial : tuner_->history().trials()) {
      if (trial.is_due()) link_fork(study, trial);
    }
    seconds_before_ = seconds_at_work(store_.past());
    const Event opened = {.kind = Event::Kind::kOpen};
    store_.append(std::span(&opened, 1));
    write_files(study);
    const auto& device = study.recipe().config().device;
    threads_ = device.threads > 0
                   ? device.threads
                   : available_cpus() / std::max<std::int64_t>(1, study.settings().workers);
    threads_ = std::max<std::int64_t>(1, threads_);
  }

  StudyOutcome run() {
    if (!tuner_->history().trials().empty()) {
      fmt::print("going on with {} in {}\n",
                 counted(std::ssize(tuner_->history().trials()), "trial"), study_.dir().string());
    }
    prepare_data(study_);
    if (!study_.settings().listen.empty()) listen();
    while (!is_over_) {
      if (interrupt_.signal() != 0 && !stopping_) stop();
      if (!stopping_) hand_out();
      tell_watcher();
      if (stopping_ && processes_.empty()) break;
      if (is_over_) break;
      wait();
      look_after();
    }
    if (leases_ && is_over_) leases_->finish();
    return {interrupt_.signal(), static_cast<int>(tuner_->history().trials().size())};
  }

 private:
  static StudyContent content(const Study& study) {
    std::error_code failure;
    fs::create_directories(study.dir(), failure);
    if (failure) throw io_error("cannot make", study.dir(), failure.value());
    return {.identity = study.identity(), .directory = fs::current_path().string()};
  }

  // What `atoll tune resume` reads. Before there is a store, so that every store can be resumed;
  // the study last, so that a study has its recipe.
  static void write_files(const Study& study) {
    write_file(study.dir() / "recipe.toml", study.recipe_toml());
    write_file(study.dir() / kStudyToml, study.to_toml());
  }

  // Before a donor's run goes on, and removes old checkpoints.
  void link_forks(std::span<const Event> events) const {
    for (const Event& event : events) {
      if (event.kind != Event::Kind::kSuggest || event.parent < 0) continue;
      link_fork(study_,
                {.number = event.trial, .parent = event.parent, .fork_step = event.fork_step});
    }
  }

  void stop() {
    stopping_ = true;
    for (auto& [trial, process] : processes_) process->signal(SIGTERM);
  }

  void listen() {
    leases_.emplace(study_);
    for (const Trial& trial : tuner_->history().trials()) {
      if (!trial.is_due() || trial.worker.empty()) continue;
      tuner_->hold(trial.number);
      leases_->expect(trial);
    }
    log::info("workers may call {}: atoll tune work {} --dir=DIR{}", leases_->address(),
              leases_->address(),
              !study_.settings().identity.empty() ? " --identity=DIR"
              : !study_.settings().secret.empty() ? " --secret=FILE"
                                                  : "");
    if (study_.settings().identity.empty() && study_.settings().secret.empty()) {
      log::info("every user of this machine can take part; study.secret keeps others out");
    }
  }

  bool is_spent() const {
    const double hours = study_.settings().hours;
    const std::chrono::duration<double> now = Clock::now() - began_;
    return hours > 0 && seconds_before_ + now.count() >= 3600 * hours;
  }

  // Gives every free place a trial. The study is over when there is none for one, and none is under
  // way.
  void hand_out() {
    while (processes_.size() < static_cast<std::size_t>(study_.settings().workers)) {
      const std::optional<Job> job = next({});
      if (!job) return;
      processes_.emplace(job->trial,
                         std::make_unique<TrialProcess>(study_, tuner_->history().trial(job->trial),
                                                        job->step, program_, threads_));
    }
    while (leases_) {
      const std::optional<std::string> worker = leases_->free_worker();
      if (!worker) return;
      const std::optional<Job> job = next(*worker);
      if (!job) return;
      leases_->lease(*worker, tuner_->history().trial(job->trial), *job);
    }
  }

  std::optional<Job> next(const std::string& worker) {
    std::optional<Job> job = tuner_->next(is_spent(), worker);
    is_over_ = !job && !tuner_->is_waiting();
    return job;
  }

  void tell_watcher() {
    if (!std::exchange(has_changed_, false) || !watcher_) return;
    watcher_(tuner_->history(), tuner_->num_running());
  }

  void wait() {
    std::vector<pollfd> polls;
    for (const auto& [trial, process] : processes_) process->watch(polls);
    if (leases_) polls.push_back({leases_->wake_fd(), POLLIN, 0});
    ::poll(polls.data(), polls.size(), kPollMs);
  }

  void look_after() {
    for (auto at = processes_.begin(); at != processes_.end();) {
      const std::optional<int> code = at->second->step();
      if (!code) {
        ++at;
        continue;
      }
      const std::unique_ptr<TrialProcess> process = std::move(at->second);
      at = processes_.erase(at);
      ended({process->trial(), process->target()}, *code, process->last_line());
    }
    if (!leases_) return;
    for (const LeaseServer::Outcome& outcome : leases_->step()) {
      if (outcome.code) {
        ended(outcome.job, *outcome.code, outcome.line);
        continue;
      }
      log::warning("trial {} is due again: {}", outcome.job.trial, outcome.line);
      tuner_->give_back(outcome.job.trial);
    }
  }

  void ended(const Job& job, int code, const std::string& line) {
    const Trial& trial = tuner_->history().trial(job.trial);
    const std::string reason = plain(line);
    if (code == 0) {
      tuner_->result(job.trial, measure(study_, trial, job.step));
      attempts_.erase(job.trial);
      tell(job);
    } else if (const std::string why = divergence(study_, trial, job.step);
               code == 1 && !why.empty()) {
      tuner_->failed(job.trial, End::kDiverged, why);
      tell(job);
    } else if (code == 2) {
      tuner_->failed(job.trial, End::kRefused, reason);
      tell(job);
      check_refusals(reason);
    } else {
      tuner_->give_back(job.trial);
      if (!stopping_) try_again(job, code, reason);
    }
    prune();
  }

  static std::string plain(const std::string& line) {
    return line.starts_with("error: ") ? line.substr(7) : line;
  }

  void try_again(const Job& job, int code, const std::string& reason) {
    if (++attempts_[job.trial] < kMaxAttempts) {
      log::warning("trial {} ended with {} before step {}; it is started again{}", job.trial, code,
                   job.step, reason.empty() ? "" : ": " + reason);
      return;
    }
    throw make_error(ErrorKind::kIo,
                     "trial {} ended {} times before step {}: {}. {} says more; nothing is lost, "
                     "and the same command goes on",
                     job.trial, kMaxAttempts, job.step,
                     reason.empty() ? fmt::format("exit code {}", code) : reason,
                     (trial_dir(study_, job.trial) / "log.txt").string());
  }

  void check_refusals(const std::string& reason) {
    int refused = 0;
    for (const Trial& trial : tuner_->history().trials()) {
      if (!trial.measured.empty()) return;
      refused += trial.end == End::kRefused ? 1 : 0;
    }
    if (refused < kRefusalsToStop) return;
    throw user_error("the first {} trials were all refused; the last one: {}", refused, reason);
  }

  void prune() {
    if (study_.settings().keep == "all") return;
    const History& history = tuner_->history();
    remove_checkpoints(study_, history.trials(),
                       best_trials(history, study_.objectives(), study_.max_steps()));
  }

  void tell(const Job& job) const {
    const History& history = tuner_->history();
    const Trial& trial = history.trial(job.trial);
    std::string shown;
    if (trial.at(job.step) != nullptr) {
      const std::vector<double>& values = trial.at(job.step)->values;
      for (std::size_t i = 0; i < values.size(); ++i) {
        shown += fmt::format("  {} {:.5g}", study_.objectives()[i].name, values[i]);
      }
    }
    if (trial.has_failed()) shown += fmt::format("  {}: {}", name_of(trial.end), trial.why);
    const std::vector<int> best = best_trials(history, study_.objectives(), study_.max_steps());
    const bool is_best = std::find(best.begin(), best.end(), job.trial) != best.end();
    const std::string line = fmt::format("trial {:>3}  step {:>6}{}{}  {}\n", job.trial, job.step,
                                         shown, is_best ? "  best" : "", settings_text(trial));
    // Where the terminal is gone the study still ends in good order.
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

  const Study& study_;
  std::string program_;
  const StudyWatcher& watcher_;
  bool has_changed_ = true;  // since the watcher was told
  StudyStore store_;
  std::optional<Tuner> tuner_;
  train::InterruptGuard interrupt_{"trials save after their steps, and the study stops"};
  std::map<int, std::unique_ptr<TrialProcess>> processes_;  // by trial
  std::optional<LeaseServer> leases_;
  std::map<int, int> attempts_;
  std::int64_t threads_ = 1;
  bool stopping_ = false;
  bool is_over_ = false;
  double seconds_before_ = 0;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

std::string settings_text(const Trial& trial) {
  std::string text;
  for (const auto& [key, value] : trial.settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

StudyOutcome run_study(const Study& study, const std::string& program,
                       const StudyWatcher& watcher) {
  Runner runner(study, program, watcher);
  const StudyOutcome outcome = runner.run();
  if (outcome.signal != 0) return outcome;
  const History history = history_of(read_study(study.dir()));
  const auto& trials = history.trials();
  const bool all_failed =
      !trials.empty() &&
      std::all_of(trials.begin(), trials.end(), [](const Trial& t) { return t.has_failed(); });
  if (all_failed) {
    throw make_error(
        ErrorKind::kNumeric, "all {} failed; the last one {}: {}. Take another space{}",
        counted(std::ssize(trials), "trial"), name_of(trials.back().end), trials.back().why,
        trials.back().end == End::kDiverged ? ": smaller learning rates diverge less" : "");
  }
  return outcome;
}

double seconds_at_work(const std::vector<LoggedEvent>& events) {
  double seconds = 0, opened = 0, last = 0;
  for (const LoggedEvent& logged : events) {
    if (logged.event.kind == Event::Kind::kOpen) {
      seconds += last - opened;
      opened = logged.unix_seconds;
    }
    last = logged.unix_seconds;
  }
  return std::max(0.0, seconds + last - opened);
}

}  // namespace atl::tune
