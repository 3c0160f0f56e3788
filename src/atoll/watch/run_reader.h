#pragma once

// A run as its directory has it, while it trains or after: settings, curves, alerts.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/metrics/alert.h"
#include "atoll/metrics/record.h"

namespace atl::watch {

/// What one bucket of a curve has: all values of some neighbouring records.
struct CurveBucket {
  std::int64_t first_step = 0, last_step = 0;
  double time_s = 0;        ///< of the last record, since 1970
  std::int64_t tokens = 0;  ///< that the run had trained on then, as far as it was told
  std::int64_t count = 0;   ///< of finite values
  std::int64_t nonfinite = 0;
  double sum = 0, lowest = 0, highest = 0;  ///< of finite values

  double mean() const { return sum / static_cast<double>(count); }
};

/// One metric over the steps of a run, in at most kMost buckets: as many neighbours share a bucket
/// as need be. No lowest, no highest and no value that is not finite is lost.
class Curve {
 public:
  static constexpr std::size_t kMost = 2048;

  void add(std::int64_t step, double time_s, std::int64_t tokens, double value);
  const std::vector<CurveBucket>& buckets() const { return buckets_; }
  /// The mean of the bucket that a step is in, or of the last before it; nothing before the first,
  /// after the last, and where no value is finite.
  std::optional<double> at(std::int64_t step) const;
  /// The last value.
  double last() const { return last_; }
  std::int64_t last_step() const { return buckets_.empty() ? -1 : buckets_.back().last_step; }
  /// The lowest finite value; nothing where there is none.
  std::optional<double> lowest() const;
  std::optional<double> highest() const;

 private:
  void halve();

  std::vector<CurveBucket> buckets_;
  std::int64_t stride_ = 1;  // records in a bucket
  std::int64_t in_last_ = 0;
  double last_ = 0;
};

/// A run that was read.
struct RunData {
  std::string name;  ///< as it was asked for
  std::filesystem::path dir;
  /// Keys of settings.toml with their values as TOML, in its order.
  std::vector<std::pair<std::string, std::string>> settings;
  std::map<std::string, Curve> curves;
  std::vector<std::string> names;  ///< of the curves, in order of first appearance
  std::int64_t num_records = 0;
  std::int64_t num_bad_lines = 0;  ///< of metrics.jsonl, that are no records
  std::int64_t last_step = 0;
  double first_time_s = 0, last_time_s = 0;  ///< of records, since 1970; 0: there are none
  std::vector<metrics::Alert> alerts;
  bool is_running = false;          ///< a process holds its lock
  std::int64_t finished_step = -1;  ///< as finished.json has it; -1: it has not finished

  /// The value of a setting; empty: there is none.
  std::string setting(const std::string& key) const;
  /// The curve of a metric; null: there is none.
  const Curve* curve(const std::string& metric) const;
};

/// Calls `take` for each record of a metrics.jsonl, in order, without holding the file in memory. A
/// last line without its end is none. Returns how many lines are no records: those of another
/// version or damaged. A file that is gone has none. Throws Error(kIo) when the disk fails.
std::int64_t for_each_record(const std::filesystem::path& path,
                             const std::function<void(const metrics::Record&)>& take);

/// Whether a process of this machine holds the lock of the run in a directory: it trains there.
bool is_running(const std::filesystem::path& dir);

/// Reads a run's directory. Throws Error(kUser) when there is none, or it is no run's.
RunData read_run(const std::filesystem::path& dir, const std::string& name);

/// The runs that a path stands for, with their names: itself, or the islands of a run of islands.
/// Throws Error(kUser) when there is none.
std::vector<std::pair<std::string, std::filesystem::path>> runs_at(
    const std::filesystem::path& path);

/// The runs below a directory, at most three levels down, in order of their names.
std::vector<std::pair<std::string, std::filesystem::path>> runs_below(
    const std::filesystem::path& directory);

/// A number for people: "3.4121", "0.00012", "9,812", "nan".
std::string format_value(double value);

}  // namespace atl::watch
