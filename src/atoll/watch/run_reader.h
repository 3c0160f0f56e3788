#pragma once

// Reads a run's directory, while the run trains or after: settings, curves, alerts.

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

/// The values of some neighbouring records of a curve, summed up.
struct CurveBucket {
  std::int64_t first_step = 0, last_step = 0;
  double time_s = 0;        ///< of the last record, Unix seconds
  std::int64_t tokens = 0;  ///< trained on by then, as the last record with "tokens" says
  std::int64_t count = 0;   ///< how many finite values
  std::int64_t nonfinite = 0;
  double sum = 0, lowest = 0, highest = 0;  ///< of finite values

  double mean() const { return sum / static_cast<double>(count); }
};

/// One metric over the steps of a run, in at most kMost buckets. When these are full, neighbouring
/// buckets are merged in pairs. Lowest and highest values, and counts of values that are not
/// finite, are kept.
class Curve {
 public:
  static constexpr std::size_t kMost = 2048;

  void add(std::int64_t step, double time_s, std::int64_t tokens, double value);
  const std::vector<CurveBucket>& buckets() const { return buckets_; }
  /// The mean of the bucket that `step` is in, or of the last bucket before `step`. Nothing before
  /// the first step, after the last, and where the bucket has no finite value.
  std::optional<double> at(std::int64_t step) const;
  /// The last value; may be NaN or infinite.
  double last() const { return last_; }
  std::int64_t last_step() const { return buckets_.empty() ? -1 : buckets_.back().last_step; }
  /// The lowest finite value; nothing where there is none.
  std::optional<double> lowest() const;
  std::optional<double> highest() const;

 private:
  void halve();

  std::vector<CurveBucket> buckets_;
  std::int64_t stride_ = 1;   // records in a full bucket
  std::int64_t in_last_ = 0;  // records in the last bucket
  double last_ = 0;
};

/// The content of a run's directory.
struct RunData {
  std::string name;  ///< as the caller has given it
  std::filesystem::path dir;
  /// Keys of settings.toml with their values as TOML, in its order.
  std::vector<std::pair<std::string, std::string>> settings;
  std::map<std::string, Curve> curves;
  std::vector<std::string> names;  ///< of the curves, in order of first appearance
  std::int64_t num_records = 0;
  std::int64_t num_bad_lines = 0;  ///< of metrics.jsonl, not records
  std::int64_t last_step = 0;
  double first_time_s = 0, last_time_s = 0;  ///< of records, Unix seconds; 0: no records
  std::vector<metrics::Alert> alerts;
  bool is_running = false;          ///< see is_running()
  std::int64_t finished_step = -1;  ///< see metrics::finished_step()

  /// The value of a setting as TOML; empty: the run does not have the setting.
  std::string setting(const std::string& key) const;
  /// The curve of a metric; null: the run does not have the metric. Owned by this.
  const Curve* curve(const std::string& metric) const;
};

/// Calls `take` for each record of a metrics.jsonl, in order, without holding the file in memory.
/// Ignores a last line without a line end. Returns how many lines are not records, because they are
/// damaged or of another version. A missing file counts as empty. Throws Error(kIo) when the disk
/// fails.
std::int64_t for_each_record(const std::filesystem::path& path,
                             const std::function<void(const metrics::Record&)>& take);

/// Whether a process of this machine holds the lock of the run in `dir`, which means it trains.
bool is_running(const std::filesystem::path& dir);

/// Reads a run's directory. Throws Error(kUser) when `dir` does not exist or is not a run's.
RunData read_run(const std::filesystem::path& dir, const std::string& name);

/// The runs that a path means, as name and directory: the run at `path`, or the islands of the run
/// with islands there. Throws Error(kUser) when there is no run.
std::vector<std::pair<std::string, std::filesystem::path>> runs_at(
    const std::filesystem::path& path);

/// The runs below a directory, as name and directory, sorted by name; at most four levels down.
/// Does not look inside a run.
std::vector<std::pair<std::string, std::filesystem::path>> runs_below(
    const std::filesystem::path& directory);

/// A number as text for people: "3.4121", "0.00012", "9,812", "nan".
std::string format_value(double value);

}  // namespace atl::watch
