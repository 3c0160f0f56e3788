#include "atoll/tune/trial/trial_process.h"

#include <sys/wait.h>

#include <csignal>

#include "atoll/base/error.h"
#include "atoll/ckpt/run_lock.h"
#include "atoll/tune/trial/trial_run.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

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

}  // namespace

TrialProcess::TrialProcess(const Study& study, const Trial& trial, std::int64_t step,
                           std::string program, std::int64_t threads)
    : study_(study), trial_(trial), step_(step), program_(std::move(program)), threads_(threads) {
  prepare_run(study_, trial_, step_);
  log_.emplace(trial_dir(study_, trial_.number) / "log.txt");
  wait_until_ = Clock::now() + kLockWait;
  begin();
}

void TrialProcess::watch(std::vector<pollfd>& polls) const {
  if (!child_) return;
  polls.push_back({child_->pid_fd(), POLLIN, 0});
  if (child_->errors().open()) polls.push_back({child_->errors().get(), POLLIN, 0});
}

void TrialProcess::signal(int number) {
  stopping_ = true;
  if (child_) child_->signal(number);
}

void TrialProcess::kill() {
  stopping_ = true;
  if (child_) child_->kill();
}

std::optional<int> TrialProcess::step() {
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

void TrialProcess::begin() {
  const fs::path run = run_dir(study_, trial_.number, step_);
  if (!is_free(run)) {
    if (Clock::now() < wait_until_) return;
    throw user_error("{} is in use by another process; stop that one first", run.string());
  }
  start(train_arguments(study_, trial_, step_, program_, threads_));
}

void TrialProcess::answer() {
  std::error_code ignored;  // what a process left that was killed
  fs::remove(task_results(study_, trial_.number, step_), ignored);
  start(task_arguments(study_, trial_, step_, program_, threads_));
}

void TrialProcess::start(std::vector<std::string> argv) {
  child_.emplace(ChildOptions{.argv = std::move(argv)});
}

}  // namespace atl::tune
