#include "atoll/tune/run_study.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>

#include "atoll/base/append_file.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/base/paths.h"
#include "atoll/base/process.h"
#include "atoll/base/quantity.h"
#include "atoll/base/thread_pool.h"
#include "atoll/ckpt/run_lock.h"
#include "atoll/train/corpus.h"
#include "atoll/train/interrupt.h"
#include "atoll/train/options.h"
#include "atoll/tune/trial_run.h"
#include "atoll/tune/tuner.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 200;        // a signal that comes just before poll() waits so long
constexpr int kMaxAttempts = 3;     // of a trial that dies without a word on its settings
constexpr int kRefusalsToStop = 3;  // before any result: the study itself is wrong
constexpr std::chrono::seconds kLockWait{60};

// Whether another process is still in the run: one that a killed tuner had started is killed with
// it, and may take a moment to be gone.
bool is_free(const fs::path& run) {
  try {
    const ckpt::RunLock lock(run);
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kUser) return false;
    throw;
  }
}

// A job with a worker: `atoll train`, and `atoll eval` after it where there is a task.
class Worker {
 public:
  Worker(const Study& study, const Trial& trial, Job job, std::string program, std::int64_t threads)
      : study_(study), trial_(trial), job_(job), program_(std::move(program)), threads_(threads) {
    prepare_run(study_, trial_, job_.step);
    log_.emplace(trial_dir(study_, trial_.number) / "log.txt");
    wait_until_ = Clock::now() + kLockWait;
    begin();
  }

  const Job& job() const { return job_; }
  const std::string& last_line() const { return last_line_; }

  void watch(std::vector<pollfd>& polls) const {
    if (!child_) return;
    polls.push_back({child_->pid_fd(), POLLIN, 0});
    if (child_->errors().open()) polls.push_back({child_->errors().get(), POLLIN, 0});
  }
  void signal(int number) {
    stopping_ = true;
    if (child_) child_->signal(number);
  }

  // Its exit code when all is done; nothing while it runs.
  std::optional<int> step() {
    if (!child_) {
      if (stopping_) return 128 + SIGTERM;
      begin();
      return std::nullopt;
    }
    const auto take = [this](std::string_view line) {
      log_->append(std::string(line) + "\n");
      if (!line.empty()) last_line_ = line;
    };
    reader_.read(child_->errors(), take);
    int status = 0;
    if (!child_->reap(status)) return std::nullopt;
    reader_.read(child_->errors(), take);
    reader_.finish(take);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code != 0 || is_answering_ || study_.settings().task.empty()) return code;
    if (stopping_) return 128 + SIGTERM;
    is_answering_ = true;
    answer();
    return std::nullopt;
  }

 private:
  void begin() {
    const fs::path run = run_dir(study_, trial_.number, job_.step);
    if (!is_free(run)) {
      if (Clock::now() < wait_until_) return;
      throw user_error("{} is in use by another process; stop that one first", run.string());
    }
    start(train_arguments(study_, trial_, job_.step, program_, threads_));
  }
  void answer() {
    std::error_code ignored;  // what a process left that was killed
    fs::remove(task_results(study_, trial_.number, job_.step), ignored);
    start(task_arguments(study_, trial_, job_.step, program_, threads_));
  }
  void start(std::vector<std::string> argv) {
    child_.emplace(ChildOptions{.argv = std::move(argv)});
  }

  const Study& study_;
  Trial trial_;  // as it was when the job began
  Job job_;
  std::string program_;
  std::int64_t threads_;
  std::optional<AppendFile> log_;
  std::optional<Child> child_;
  LineReader reader_;
  std::string last_line_;
  bool is_answering_ = false;
  bool stopping_ = false;
  Clock::time_point wait_until_;
};

// Tokens, once for all trials, where no trial has others.
void prepare_data(const Study& study) {
  const auto& dimensions = study.space().dimensions();
  const bool differs = std::any_of(dimensions.begin(), dimensions.end(),
                                   [](const Dimension& d) { return d.key.starts_with("data."); });
  if (study.recipe().config().data.text.empty() || differs) return;
  train::prepare_corpus(train::corpus_options(study.recipe().config()));
}

class Runner {
 public:
  Runner(const Study& study, std::string program)
      : study_(study), program_(std::move(program)), store_(study.dir(), content(study)) {
    std::vector<Event> past;
    for (const LoggedEvent& logged : store_.past()) past.push_back(logged.event);
    tuner_.emplace(problem_of(study), past,
                   [this](std::span<const Event> events) { store_.append(events); });
    seconds_before_ = seconds_at_work(store_.past());
    const Event opened = {.kind = Event::Kind::kOpen};
    store_.append(std::span(&opened, 1));
    write_file(study.dir() / "recipe.toml", study.recipe_toml());
    write_file(study.dir() / "study.toml", study.to_toml());
    const auto& device = study.recipe().config().device;
    threads_ = device.threads > 0
                   ? device.threads
                   : std::max<std::int64_t>(1, available_cpus() / study.settings().workers);
  }

  StudyOutcome run() {
    if (!tuner_->history().trials().empty()) {
      fmt::print("going on with {} in {}\n",
                 counted(std::ssize(tuner_->history().trials()), "trial"), study_.dir().string());
    }
    prepare_data(study_);
    for (;;) {
      if (interrupt_.signal() != 0 && !stopping_) stop();
      if (!stopping_) hand_out();
      if (workers_.empty()) break;
      wait();
      look_after();
    }
    return {interrupt_.signal(), static_cast<int>(tuner_->history().trials().size())};
  }

 private:
  static StudyContent content(const Study& study) {
    std::error_code failure;
    fs::create_directories(study.dir(), failure);
    if (failure) throw io_error("cannot make", study.dir(), failure.value());
    return {.identity = study.identity(), .directory = fs::current_path().string()};
  }

  void stop() {
    stopping_ = true;
    for (auto& [trial, worker] : workers_) worker->signal(SIGTERM);
  }

  bool is_spent() const {
    const double hours = study_.settings().hours;
    const std::chrono::duration<double> now = Clock::now() - began_;
    return hours > 0 && seconds_before_ + now.count() >= 3600 * hours;
  }

  void hand_out() {
    while (workers_.size() < static_cast<std::size_t>(study_.settings().workers)) {
      const std::optional<Job> job = tuner_->next(is_spent());
      if (!job) return;
      workers_.emplace(job->trial,
                       std::make_unique<Worker>(study_, tuner_->history().trial(job->trial), *job,
                                                program_, threads_));
    }
  }

  void wait() {
    std::vector<pollfd> polls;
    for (const auto& [trial, worker] : workers_) worker->watch(polls);
    ::poll(polls.data(), polls.size(), kPollMs);
  }

  void look_after() {
    for (auto at = workers_.begin(); at != workers_.end();) {
      const std::optional<int> code = at->second->step();
      if (!code) {
        ++at;
        continue;
      }
      const std::unique_ptr<Worker> worker = std::move(at->second);
      at = workers_.erase(at);
      ended(*worker, *code);
    }
  }

  void ended(const Worker& worker, int code) {
    const Job job = worker.job();
    const Trial& trial = tuner_->history().trial(job.trial);
    const std::string reason = plain(worker.last_line());
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
    fmt::print("trial {:>3}  step {:>6}{}{}  {}\n", job.trial, job.step, shown,
               is_best ? "  best" : "", settings_text(trial));
    std::fflush(stdout);
  }

  const Study& study_;
  std::string program_;
  StudyStore store_;
  std::optional<Tuner> tuner_;
  train::InterruptGuard interrupt_;
  std::map<int, std::unique_ptr<Worker>> workers_;
  std::map<int, int> attempts_;
  std::int64_t threads_ = 1;
  bool stopping_ = false;
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

StudyOutcome run_study(const Study& study, const std::string& program) {
  Runner runner(study, program);
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

std::unique_ptr<Study> open_study(const fs::path& dir, const std::vector<std::string>& more) {
  read_study(dir);  // says what is wrong where there is none
  std::vector<std::string> overrides = more;
  overrides.push_back("--study.dir=" + dir.string());
  overrides.push_back("--study.recipe=" + (dir / "recipe.toml").string());
  return std::make_unique<Study>(dir / "study.toml", overrides);
}

History history_of(const StudyContent& content) {
  History history;
  for (const LoggedEvent& logged : content.events) history.apply(logged.event);
  return history;
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
