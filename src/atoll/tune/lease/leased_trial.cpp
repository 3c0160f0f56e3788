#include "atoll/tune/lease/leased_trial.h"

#include <poll.h>

#include <chrono>
#include <set>
#include <utility>

#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/tune/lease/inputs.h"
#include "atoll/tune/trial/trial_process.h"
#include "atoll/tune/trial/trial_run.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds kPoll{200};

void remove_empty(const fs::path& root) {
  std::error_code ignored;  // an empty directory that stays does no harm
  std::vector<fs::path> directories;
  for (const fs::directory_entry& entry : entries_below(root)) {
    if (entry.is_directory(ignored)) directories.push_back(entry.path());
  }
  for (auto at = directories.rbegin(); at != directories.rend(); ++at) {
    if (fs::is_empty(*at, ignored)) fs::remove(*at, ignored);
  }
}

}  // namespace

LeasedTrial::LeasedTrial(const Study& study, Lease lease, FileTransfer& transfer,
                         const WakeEvent& wake, const std::string& program, std::int64_t threads)
    : study_(study),
      lease_(std::move(lease)),
      transfer_(transfer),
      wake_(wake),
      program_(program),
      threads_(threads),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

std::optional<LeaseMessage> LeasedTrial::news() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnded) return Ended{lease_.id, code_, line_, files_};
  if (state_ == State::kPut) return Delivered{lease_.id};
  return std::nullopt;
}

bool LeasedTrial::take_news() {
  const std::lock_guard lock(mutex_);
  return std::exchange(has_news_, false);
}

void LeasedTrial::connected() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kPut) state_ = State::kEnded;
  has_news_ = state_ == State::kEnded;
}

void LeasedTrial::want(const std::vector<int>& files) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kWorking) return;
    wanted_ = files;
    state_ = State::kPutting;
  }
  changed_.notify_all();
}

std::optional<Error> LeasedTrial::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

fs::path LeasedTrial::dir() const {
  return trial_dir(study_, lease_.id.trial);
}

void LeasedTrial::run(const std::stop_token& stop) {
  try {
    if (!prepare(stop) || !train(stop)) return;
    give_back(stop);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error;
    wake_.wake();
  }
}

// Makes the trial's directory equal to the tuner's: removes files that the tuner does not have,
// which may be of an older lease, and fetches those that are missing.
bool LeasedTrial::prepare(const std::stop_token& stop) {
  std::set<std::string> wanted;
  for (const FileEntry& file : lease_.files) wanted.insert(file.path);
  for (const FileEntry& file : list_files(dir(), travels)) {
    if (wanted.contains(file.path)) continue;
    std::error_code failure;
    fs::remove(dir() / file.path, failure);
    if (failure) throw io_error("cannot remove", dir() / file.path, failure.value());
  }
  remove_empty(dir());
  std::error_code failure;
  fs::create_directories(dir(), failure);
  if (failure) throw io_error("cannot make", dir(), failure.value());
  return transfer_.fetch(key_of(lease_.id), lease_.files, dir(), stop);
}

bool LeasedTrial::train(const std::stop_token& stop) {
  Trial trial = {.number = lease_.id.trial, .settings = lease_.settings, .target = lease_.step};
  if (lease_.reached > 0) trial.measured.push_back({.step = lease_.reached});
  TrialProcess process(study_, trial, lease_.step, program_, threads_);
  std::optional<int> code;
  while (!(code = process.step())) {
    if (stop.stop_requested()) {
      process.kill();
      return false;
    }
    std::vector<pollfd> polls;
    process.watch(polls);
    ::poll(polls.data(), polls.size(), static_cast<int>(kPoll.count()));
  }
  if (stop.stop_requested()) return false;
  const std::lock_guard lock(mutex_);
  code_ = *code;
  line_ = process.last_line();
  return true;
}

void LeasedTrial::give_back(const std::stop_token& stop) {
  std::vector<FileEntry> files = list_files(dir(), travels);
  std::unique_lock lock(mutex_);
  files_ = std::move(files);
  set(State::kEnded);
  while (changed_.wait(lock, stop, [&] { return state_ == State::kPutting; })) {
    const std::vector<int> wanted = wanted_;
    lock.unlock();
    const bool is_put = transfer_.put(back_list(lease_.id), files_, wanted, dir(), stop);
    lock.lock();
    // A tuner that was restarted meanwhile does not know the files: then Ended is sent again.
    if (state_ == State::kPutting) set(is_put ? State::kPut : State::kEnded);
  }
}

void LeasedTrial::set(State state) {
  state_ = state;
  has_news_ = true;
  wake_.wake();
}

}  // namespace atl::tune
