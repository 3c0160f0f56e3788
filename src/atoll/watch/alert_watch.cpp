#include "atoll/watch/alert_watch.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/terminal.h"
#include "atoll/metrics/record.h"

namespace atl::watch {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Much shorter than the 5 s within which an alert must be reported.
constexpr std::chrono::milliseconds kTick{250};
constexpr std::chrono::seconds kDiskEvery{1};

double now_s() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::optional<std::uint64_t> free_bytes_of(const fs::path& directory) {
  struct statvfs info = {};
  if (::statvfs(directory.c_str(), &info) != 0) return std::nullopt;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

// The sizes of the files below a directory, added; 0 where the directory is gone.
std::uint64_t bytes_in(const fs::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone)) bytes += it->file_size(gone);
  }
  return error ? 0 : bytes;
}

// The JSON that a webhook gets: the alert, the run, and "text", which chat services show.
std::string to_post(const Alert& alert, const fs::path& run_dir) {
  auto json = nlohmann::ordered_json::parse(metrics::to_jsonl(alert));
  json["run"] = run_dir.string();
  json["text"] = fmt::format("{}: {}", run_dir.string(), metrics::to_line(alert));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

AlertOutlet::AlertOutlet(fs::path run_dir, const std::string& webhook,
                         std::function<void(const Alert&)> on_told)
    : run_dir_(std::move(run_dir)), on_told_(std::move(on_told)) {
  if (!webhook.empty()) webhook_ = std::make_unique<Webhook>(webhook);
}

void AlertOutlet::tell(Alert alert) {
  const std::lock_guard lock(mutex_);
  alert.time_s = metrics::wall_time_now();
  // Clears the line, where a progress bar may be; the next step draws the bar again.
  if (terminal_columns(STDERR_FILENO) > 0) std::fputs("\r\x1b[K", stderr);
  const std::string line = metrics::to_line(alert);
  if (alert.severity == Severity::kInfo) {
    log::info("{}", line);
  } else {
    log::warning("{}", line);
  }
  if (on_told_) on_told_(alert);
  if (webhook_) webhook_->post(to_post(alert, run_dir_));
  try {
    if (!file_) file_.emplace(run_dir_ / metrics::kAlertsFile);
    file_->append(metrics::to_jsonl(alert) + "\n");
    has_failed_ = false;
  } catch (const Error& error) {
    if (!has_failed_) log::warning("an alert is not in its file: {}", error.what());
    has_failed_ = true;
  }
}

AlertWatch::AlertWatch(AlertContext context, std::set<AlertKind> off, const std::string& webhook,
                       std::function<void(const Alert&)> on_told)
    : run_dir_(context.run_dir),
      outlet_(run_dir_, webhook, std::move(on_told)),
      rules_(std::move(context), std::move(off)),
      thread_([this] { look_after(); }) {}

AlertWatch::~AlertWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void AlertWatch::look_after() {
  Clock::time_point disk_at = Clock::now();
  std::optional<std::uint64_t> free_bytes;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, kTick, [this] { return ends_ || !waiting_.empty(); });
    if (Clock::now() >= disk_at) {
      lock.unlock();  // the system call may take long
      free_bytes = free_bytes_of(run_dir_);
      disk_at = Clock::now() + kDiskEvery;
      lock.lock();
    }
    add(rules_.tick(now_s(), free_bytes));
    tell_waiting(lock);
    if (ends_ && waiting_.empty()) return;
  }
}

void AlertWatch::tell_waiting(std::unique_lock<std::mutex>& lock) {
  while (!waiting_.empty()) {
    std::vector<Alert> alerts = std::move(waiting_);
    waiting_.clear();
    lock.unlock();
    for (Alert& alert : alerts) outlet_.tell(std::move(alert));
    lock.lock();
  }
}

void AlertWatch::add(std::vector<Alert> alerts) {
  for (Alert& alert : alerts) waiting_.push_back(std::move(alert));
}

void AlertWatch::stepped(const metrics::StepFacts& facts) {
  {
    const std::lock_guard lock(mutex_);
    add(rules_.stepped(facts));
    if (waiting_.empty()) return;
  }
  changed_.notify_one();
}

void AlertWatch::paused(metrics::Pause what) {
  const std::lock_guard lock(mutex_);
  rules_.paused(what, now_s());
}

void AlertWatch::resumed() {
  const std::lock_guard lock(mutex_);
  rules_.resumed(now_s());
}

void AlertWatch::checkpoint_begun(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  rules_.checkpoint_begun(step, now_s());
}

void AlertWatch::checkpoint_saved(const fs::path& path) {
  const std::uint64_t bytes = bytes_in(path);
  const std::lock_guard lock(mutex_);
  rules_.checkpoint_saved(now_s(), bytes);
}

void AlertWatch::ranks_lost(std::int64_t step, int before, int now, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    add(rules_.ranks_lost(step, before, now, why, now_s()));
  }
  changed_.notify_one();
}

}  // namespace atl::watch
