#include "atoll/watch/run_table.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/settings/toml.h"
#include "atoll/metrics/finished.h"
#include "atoll/metrics/record.h"

namespace atl::watch {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kSliceBytes = 4 << 20;  // per run and update, so that each has its turn
constexpr std::chrono::milliseconds kTurn{200};
constexpr std::chrono::seconds kScanEvery{2};
constexpr double kFreshS = 60;  // of a run that may be running on another machine
constexpr std::uint64_t kMaxSideBytes = 1 << 20;
constexpr std::size_t kMaxSideLines = 500;
constexpr std::size_t kLeastCacheBytes = 4 << 20;
constexpr std::size_t kMaxCheckpoints = 1000;

// The files that processes of this machine have locked, as "major:minor:inode". A test of the lock
// itself would hold it for a moment, and a run that begins just then would be refused.
std::set<std::string> locked_files() {
  std::set<std::string> files;
  std::ifstream list("/proc/locks");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, pid, file;
    if (words >> number >> kind >> advisory >> mode >> pid >> file && kind == "FLOCK") {
      files.insert(file);
    }
  }
  return files;
}

std::string lock_name(const struct stat& status) {
  return fmt::format("{:02x}:{:02x}:{}", ::major(status.st_dev), ::minor(status.st_dev),
                     status.st_ino);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, 200);
}

// Whether a lock's first line, "process 4711 on alpha" (ckpt/run_lock.cpp), names another machine:
// the locks of its processes are not in the list of this one.
bool is_of_elsewhere(const std::string& holder) {
  constexpr std::string_view kOn = " on ";
  const std::size_t at = holder.rfind(kOn);
  char host[256] = "";
  if (at == holder.npos || ::gethostname(host, sizeof host - 1) != 0) return false;
  return holder.substr(at + kOn.size()) != host;
}

std::vector<std::pair<std::string, std::string>> read_settings(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> settings;
  try {
    for (const TomlEntry& entry : parse_toml(read_file(path, kMaxSideBytes), path.string())) {
      if (!entry.table) settings.emplace_back(entry.key, entry.text);
    }
  } catch (const Error&) {
    settings.clear();  // the file is being written, is missing, or is not a run's
  }
  return settings;
}

// The last lines of a file that grows.
SideLines read_lines(const fs::path& path, std::uint64_t bytes) {
  SideLines result{.bytes = bytes};
  std::ifstream file(path, std::ios::binary);
  const std::uint64_t skipped = bytes > kMaxSideBytes ? bytes - kMaxSideBytes : 0;
  file.seekg(static_cast<std::streamoff>(skipped));
  std::string text(bytes - skipped, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  std::size_t begin = skipped == 0 ? 0 : text.find('\n') + 1;
  for (std::size_t end = text.find('\n', begin); end != text.npos; end = text.find('\n', begin)) {
    result.lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (result.lines.size() > kMaxSideLines) {
    result.lines.erase(result.lines.begin(), result.lines.end() - kMaxSideLines);
  }
  return result;
}

bool refresh_lines(const fs::path& path, SideLines& side) {
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(path, error);
  if (error || bytes == side.bytes) return false;
  side = read_lines(path, bytes);
  return true;
}

std::int64_t setting_number(const WatchedRun& run, std::string_view key) {
  std::int64_t number = -1;
  for (const auto& [name, value] : run.settings) {
    if (name == key) std::from_chars(value.data(), value.data() + value.size(), number);
  }
  return number;
}

double unix_seconds(const struct stat& status) {
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

// Adds new checkpoints ("step-000100") to the run's list. Checkpoints that are removed later stay
// in the list.
bool refresh_checkpoints(WatchedRun& run) {
  bool has_changed = false;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run.dir / "checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    std::int64_t step = -1;
    const auto [end, code] = std::from_chars(name.data() + digits, name.data() + name.size(), step);
    if (code != std::errc() || name.find('.') != name.npos) continue;
    const auto known =
        std::ranges::find(run.checkpoints, step, &std::pair<std::int64_t, double>::first);
    struct stat status {};
    if (known != run.checkpoints.end() || ::stat(entry.path().c_str(), &status) != 0) continue;
    run.checkpoints.emplace_back(step, unix_seconds(status));
    has_changed = true;
  }
  std::ranges::sort(run.checkpoints);
  if (run.checkpoints.size() > kMaxCheckpoints) {
    run.checkpoints.erase(run.checkpoints.begin(), run.checkpoints.end() - kMaxCheckpoints);
  }
  return has_changed;
}

// Reads ranks.json (train/ranks/rank_times.h) when it has changed.
bool refresh_ranks(WatchedRun& run) {
  const fs::path path = run.dir / "ranks.json";
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return !std::exchange(run.ranks, "").empty();
  if (!run.ranks.empty() && unix_seconds(status) == run.ranks_changed_s) return false;
  run.ranks_changed_s = unix_seconds(status);
  try {
    run.ranks = read_file(path, kMaxSideBytes);
  } catch (const Error&) {
    return false;  // the file is missing, or too long to be ranks.json
  }
  return true;
}

// Reads finished.json (metrics/finished.h) when it has changed.
void refresh_finished(WatchedRun& run) {
  struct stat status {};
  if (::stat((run.dir / metrics::kFinishedFile).c_str(), &status) != 0) {
    run.finished_step = -1;
    run.finished_changed_s = 0;
  } else if (unix_seconds(status) != run.finished_changed_s) {
    run.finished_changed_s = unix_seconds(status);
    run.finished_step = metrics::finished_step(run.dir);
  }
}

// The file with the run's trace: log.trace, or trace.json in the run's directory.
fs::path find_trace(const WatchedRun& run) {
  std::error_code error;
  for (const auto& [key, value] : run.settings) {
    if (key != "log.trace" || value.size() < 3) continue;
    fs::path path = value.substr(1, value.size() - 2);
    if (fs::is_regular_file(path, error)) return path;
  }
  const fs::path path = run.dir / "trace.json";
  return fs::is_regular_file(path, error) ? path : fs::path();
}

bool is_scanned(const std::string& name) {
  return !name.starts_with('.') && name != "checkpoints" && name != "data" && name != "corpus";
}

}  // namespace

const char* name_of(RunState state) {
  constexpr const char* kNames[] = {"running", "finished", "stopped", "lost"};
  return kNames[static_cast<std::size_t>(state)];
}

RunTable::RunTable(std::vector<fs::path> roots, std::size_t cache_bytes)
    : roots_(std::move(roots)), cache_bytes_(cache_bytes) {}

void RunTable::scan(const fs::path& dir, int depth) {
  std::error_code error;
  const std::string id = dir.lexically_normal().string();
  if (fs::is_regular_file(dir / "metrics.jsonl", error) ||
      fs::is_regular_file(dir / "settings.toml", error)) {
    const std::lock_guard lock(mutex_);
    if (runs_.size() < kMaxRuns && !runs_.contains(id)) {
      // A tenth for each run: few runs are looked at, so few caches fill.
      runs_[id] = {.id = id,
                   .dir = dir,
                   .log = std::make_shared<RunLog>(dir / "metrics.jsonl",
                                                   std::max(cache_bytes_ / 10, kLeastCacheBytes))};
    }
  }
  const auto note = [&](const char* file, std::map<std::string, fs::path>& list) {
    if (!fs::is_regular_file(dir / file, error)) return;
    const std::lock_guard lock(mutex_);
    list.emplace(id, dir);
  };
  note("study.sqlite", studies_);
  note("ledger.db", ledgers_);
  if (depth == kMaxDepth) return;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (!is_scanned(entry.path().filename().string())) continue;
    if (entry.is_directory(error) && !entry.is_symlink(error)) scan(entry.path(), depth + 1);
  }
}

bool RunTable::refresh(WatchedRun& run, const std::set<std::string>& locks) const {
  bool has_changed = refresh_lines(run.dir / "alerts.jsonl", run.alerts);
  has_changed |= refresh_lines(run.dir / "notes.jsonl", run.notes);
  has_changed |= refresh_lines(run.dir / "samples.jsonl", run.samples);
  has_changed |= refresh_ranks(run);
  has_changed |= refresh_checkpoints(run);
  const fs::path settings = run.dir / "settings.toml";
  struct stat status {};
  if (run.settings.empty() || (::stat(settings.c_str(), &status) == 0 &&
                               unix_seconds(status) > metrics::wall_time_now() - 5)) {
    auto now = read_settings(settings);
    if (now != run.settings) {
      run.settings = std::move(now);
      has_changed = true;
    }
  }
  const bool had_trace = !run.trace.empty();
  run.trace = find_trace(run);
  has_changed |= had_trace != !run.trace.empty();
  const fs::path lock = run.dir / "lock";
  const bool has_lock = ::stat(lock.c_str(), &status) == 0;
  const bool is_locked = has_lock && locks.contains(lock_name(status));
  const bool is_unseen = !has_lock || (!is_locked && is_of_elsewhere(first_line(lock)));
  const bool is_fresh = is_unseen && metrics::wall_time_now() - run.changed_s < kFreshS;
  const double last_step = run.log->summary().last[static_cast<std::size_t>(Axis::kStep)];
  const auto total = static_cast<double>(setting_number(run, "train.steps"));
  const bool is_saved =
      !run.checkpoints.empty() && static_cast<double>(run.checkpoints.back().first) >= last_step;
  refresh_finished(run);
  const bool has_finished =
      (total > 0 && last_step >= total) ||
      (run.finished_step >= 0 && static_cast<double>(run.finished_step) >= last_step);
  const RunState state = is_locked || is_fresh             ? RunState::kRunning
                         : has_finished                    ? RunState::kFinished
                         : is_saved || !run.log->is_read() ? RunState::kStopped
                                                           : RunState::kLost;
  if (state != run.state) {
    run.state = state;
    has_changed = true;
  }
  run.holder = is_locked ? first_line(lock) : "";
  return has_changed;
}

std::set<std::string> RunTable::update() {
  const Clock::time_point begin = Clock::now();
  std::set<std::string> changed;
  if (begin - scanned_at_ >= kScanEvery) {
    const auto count = [this] { return runs().size() + studies().size() + ledgers().size(); };
    const std::size_t before = count();
    for (const fs::path& root : roots_) scan(root, 0);
    scanned_at_ = begin;
    if (count() != before) changed.insert("");
  }
  const std::set<std::string> locks = locked_files();
  has_more_ = false;
  for (WatchedRun run : runs()) {
    const bool has_time = Clock::now() - begin < kTurn;
    bool is_new = has_time && run.log->update(kSliceBytes);
    has_more_ |= !run.log->is_read();
    struct stat status {};
    const bool is_there = ::stat((run.dir / "metrics.jsonl").c_str(), &status) == 0;
    if (is_there) run.changed_s = unix_seconds(status);
    is_new |= refresh(run, locks);
    if (is_new) changed.insert(run.id);
    const std::lock_guard lock(mutex_);
    runs_[run.id] = std::move(run);
  }
  return changed;
}

std::vector<WatchedRun> RunTable::runs() const {
  const std::lock_guard lock(mutex_);
  std::vector<WatchedRun> result;
  for (const auto& [id, run] : runs_) result.push_back(run);
  return result;
}

bool RunTable::find(const std::string& id, WatchedRun& run) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(id);
  if (found == runs_.end()) return false;
  run = found->second;
  return true;
}

std::map<std::string, fs::path> RunTable::studies() const {
  const std::lock_guard lock(mutex_);
  return studies_;
}

std::map<std::string, fs::path> RunTable::ledgers() const {
  const std::lock_guard lock(mutex_);
  return ledgers_;
}

}  // namespace atl::watch
