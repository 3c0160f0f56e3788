#include "atoll/watch/run_reader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/base/settings/toml.h"
#include "atoll/metrics/finished.h"
#include "atoll/metrics/jsonl_sink.h"

namespace atl::watch {

namespace fs = std::filesystem;

namespace {

// A record has some hundred bytes; a line longer than this is not one.
constexpr std::size_t kLongestLine = std::size_t{1} << 20;
// A file with ever new names must not fill the memory.
constexpr std::size_t kMostCurves = 512;
constexpr int kDeepest = 3;

bool is_run(const fs::path& dir) {
  return file_exists(dir / "metrics.jsonl") || file_exists(dir / "settings.toml");
}

void read_settings(const fs::path& path, RunData& run) {
  if (!file_exists(path)) return;
  for (const TomlEntry& entry : parse_toml(read_file(path), path.string())) {
    if (!entry.table) run.settings.emplace_back(entry.key, entry.text);
  }
}

void take_record(const metrics::Record& record, std::int64_t& tokens, RunData& run) {
  ++run.num_records;
  run.last_step = std::max(run.last_step, record.step);
  if (run.first_time_s == 0) run.first_time_s = record.wall_time_s;
  run.last_time_s = record.wall_time_s;
  for (const auto& [name, value] : record.values) {
    if (name == "tokens" && std::holds_alternative<std::int64_t>(value)) {
      tokens = std::get<std::int64_t>(value);
    }
  }
  for (const auto& [name, value] : record.values) {
    if (std::holds_alternative<std::string>(value)) continue;
    const auto found = run.curves.find(name);
    if (found == run.curves.end()) {
      if (run.curves.size() == kMostCurves) continue;
      run.names.push_back(name);
    }
    const double number = std::holds_alternative<double>(value)
                              ? std::get<double>(value)
                              : static_cast<double>(std::get<std::int64_t>(value));
    run.curves[name].add(record.step, record.wall_time_s, tokens, number);
  }
}

void merge(CurveBucket& into, const CurveBucket& next) {
  if (next.count > 0) {
    into.lowest = into.count > 0 ? std::min(into.lowest, next.lowest) : next.lowest;
    into.highest = into.count > 0 ? std::max(into.highest, next.highest) : next.highest;
  }
  into.last_step = next.last_step;
  into.time_s = next.time_s;
  into.tokens = next.tokens;
  into.count += next.count;
  into.nonfinite += next.nonfinite;
  into.sum += next.sum;
}

}  // namespace

void Curve::add(std::int64_t step, double time_s, std::int64_t tokens, double value) {
  const bool is_finite = std::isfinite(value);
  const CurveBucket one = {.first_step = step,
                           .last_step = step,
                           .time_s = time_s,
                           .tokens = tokens,
                           .count = is_finite ? 1 : 0,
                           .nonfinite = is_finite ? 0 : 1,
                           .sum = is_finite ? value : 0,
                           .lowest = is_finite ? value : 0,
                           .highest = is_finite ? value : 0};
  last_ = value;
  if (!buckets_.empty() && in_last_ < stride_) {
    merge(buckets_.back(), one);
    ++in_last_;
    return;
  }
  if (buckets_.size() == kMost) halve();
  buckets_.push_back(one);
  in_last_ = 1;
}

void Curve::halve() {
  for (std::size_t i = 0; i < kMost / 2; ++i) {
    CurveBucket both = buckets_[2 * i];
    merge(both, buckets_[2 * i + 1]);
    buckets_[i] = both;
  }
  buckets_.resize(kMost / 2);
  stride_ *= 2;
}

std::optional<double> Curve::at(std::int64_t step) const {
  if (buckets_.empty() || step > buckets_.back().last_step) return std::nullopt;
  const auto after = std::upper_bound(
      buckets_.begin(), buckets_.end(), step,
      [](std::int64_t wanted, const CurveBucket& bucket) { return wanted < bucket.first_step; });
  if (after == buckets_.begin() || std::prev(after)->count == 0) return std::nullopt;
  return std::prev(after)->mean();
}

std::optional<double> Curve::lowest() const {
  std::optional<double> lowest;
  for (const CurveBucket& one : buckets_) {
    if (one.count > 0) lowest = std::min(lowest.value_or(one.lowest), one.lowest);
  }
  return lowest;
}

std::optional<double> Curve::highest() const {
  std::optional<double> highest;
  for (const CurveBucket& one : buckets_) {
    if (one.count > 0) highest = std::max(highest.value_or(one.highest), one.highest);
  }
  return highest;
}

std::string RunData::setting(const std::string& key) const {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  return found == settings.end() ? "" : found->second;
}

const Curve* RunData::curve(const std::string& metric) const {
  const auto found = curves.find(metric);
  return found == curves.end() ? nullptr : &found->second;
}

std::int64_t for_each_record(const fs::path& path,
                             const std::function<void(const metrics::Record&)>& take) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return 0;
  std::int64_t bad = 0;
  std::string line;
  std::string piece(std::size_t{1} << 16, '\0');
  bool is_too_long = false;
  const auto end_line = [&] {
    try {
      if (is_too_long) throw damaged_error("a line of more than {} bytes", kLongestLine);
      take(metrics::parse_jsonl(line, path.string()));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDamaged) throw;
      ++bad;
    }
    line.clear();
    is_too_long = false;
  };
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    std::string_view rest(piece.data(), static_cast<std::size_t>(file.gcount()));
    for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      if (!is_too_long) line.append(rest.substr(0, end));
      end_line();
      rest.remove_prefix(end + 1);
    }
    if (line.size() + rest.size() > kLongestLine) is_too_long = true;
    if (!is_too_long) line.append(rest);
  }
  if (file.bad()) throw io_error("cannot read", path, errno);
  return bad;
}

// Reads /proc/locks, because taking the lock for a test could keep a run from starting meanwhile.
// Lines of /proc/locks (proc(5)) are "1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF".
bool is_running(const fs::path& dir) {
  struct stat info = {};
  if (::stat((dir / "lock").c_str(), &info) != 0) return false;
  const std::string inode = fmt::format(":{}", info.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, pid, file;
    words >> number >> kind >> advisory >> access >> pid >> file;
    if (kind == "FLOCK" && access == "WRITE" && file.ends_with(inode)) return true;
  }
  return false;
}

RunData read_run(const fs::path& dir, const std::string& name) {
  if (!directory_exists(dir)) {
    throw user_error("there is no run {}{}", dir.string(), advice_for_absent(dir));
  }
  if (!is_run(dir)) {
    throw user_error("{} is no run's directory: it has neither settings.toml nor metrics.jsonl",
                     dir.string());
  }
  RunData run;
  run.name = name;
  run.dir = dir;
  read_settings(dir / "settings.toml", run);
  std::int64_t tokens = 0;
  run.num_bad_lines = for_each_record(dir / "metrics.jsonl", [&](const metrics::Record& record) {
    take_record(record, tokens, run);
  });
  run.alerts = metrics::read_alerts(dir);
  run.is_running = watch::is_running(dir);
  run.finished_step = metrics::finished_step(dir);
  return run;
}

std::vector<std::pair<std::string, fs::path>> runs_below(const fs::path& directory) {
  std::vector<std::pair<std::string, fs::path>> runs;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (!it->is_directory(gone)) continue;
    if (is_run(it->path())) {
      runs.emplace_back(fs::relative(it->path(), directory, gone).string(), it->path());
      it.disable_recursion_pending();
    } else if (it.depth() >= kDeepest) {
      it.disable_recursion_pending();
    }
  }
  std::sort(runs.begin(), runs.end());
  return runs;
}

std::vector<std::pair<std::string, fs::path>> runs_at(const fs::path& path) {
  if (is_run(path)) return {{path.string(), path}};
  if (!directory_exists(path)) {
    throw user_error("there is no run {}{}", path.string(), advice_for_absent(path));
  }
  auto runs = runs_below(path / "islands");
  for (auto& [name, dir] : runs) name = (path / "islands" / name).string();
  if (!runs.empty()) return runs;
  throw user_error(
      "{} is no run's directory: it has neither settings.toml nor metrics.jsonl; `atoll runs list "
      "{}` shows the runs below it",
      path.string(), path.string());
}

std::string format_value(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::abs(value);
  if (value == std::round(value) && size < 1e15) {
    return format_count(static_cast<std::int64_t>(value));
  }
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return fmt::format("{:.3e}", value);
  if (size >= 100) return fmt::format("{:.1f}", value);
  return fmt::format("{:.4f}", value);
}

}  // namespace atl::watch
