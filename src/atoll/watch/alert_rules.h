#pragma once

// When a run is said to be in trouble: rules without clock, file or thread, over what the run
// tells.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atoll/metrics/alert.h"
#include "atoll/metrics/observer.h"

namespace atl::watch {

using metrics::Alert;
using metrics::AlertKind;
using metrics::Severity;

/// What commands in alerts name.
struct AlertContext {
  std::string run_dir;
  std::string resume;  ///< the command line that goes on with the run, as a shell takes it
  double lr = 0;       ///< optim.lr of the run
  std::int64_t pid = 0;
  /// False where ranks have unequal work by design (stages of a pipeline, experts): a rank is then
  /// measured by its own past.
  bool ranks_are_equal = true;
  std::uint64_t checkpoint_bytes = 0;  ///< of one checkpoint, estimated
};

/// The last values of something, at most so many.
class RecentValues {
 public:
  explicit RecentValues(std::size_t most) : most_(most) {}

  void add(double value);
  void clear() { values_.clear(); }
  std::size_t size() const { return values_.size(); }
  const std::deque<double>& values() const { return values_; }
  double median() const;
  /// The value that such a part of them does not exceed.
  double quantile(double part) const;
  double mean() const;
  double largest() const;
  /// Half of the values are no further from the median than this.
  double median_deviation() const;
  double standard_deviation() const;

 private:
  std::size_t most_;
  std::deque<double> values_;
};

/// The loss of one step far above those before it: beyond the median by more than 8 standard
/// deviations, as the median deviation has them, by a tenth of it, and by 1.5 times as much as any
/// of the last 32. In the first 16 steps: more than twice the largest, and 2 nats.
class SpikeRule {
 public:
  /// What there is to say of the next step's loss; empty: nothing.
  std::string step(double loss);

 private:
  // The largest loss that is none; nothing: any may be.
  std::optional<double> most() const;

  RecentValues before_{32};
  std::int64_t quiet_ = 0;  // steps until it speaks again
};

/// The mean loss has risen for good: that of the last 50 steps is above the lowest such mean by 5%
/// of it, and by 6 standard errors of the difference.
class DivergenceRule {
 public:
  std::string step(double loss);

 private:
  RecentValues recent_{50};
  std::optional<double> best_;
  bool has_spoken_ = false;
};

/// Steps that take more than twice the median of those before, and 1.5 times what all but 5% of
/// them take. What is said of slowness is said of all of the last 3 seconds, and of two steps at
/// least.
class ThroughputRule {
 public:
  std::string step(double seconds);

 private:
  std::deque<double> evidence_;
  RecentValues usual_{200};
  bool has_spoken_ = false;
};

/// One rank that is slower than the median of the others by half, in nine of ten of those steps.
class StragglerRule {
 public:
  explicit StragglerRule(bool ranks_are_equal) : ranks_are_equal_(ranks_are_equal) {}
  std::string step(double seconds, const std::vector<double>& rank_seconds);

 private:
  struct Evidence {
    double seconds;
    std::vector<double> ratios;  // of each rank to the median of the others
  };
  bool ranks_are_equal_;
  std::deque<Evidence> evidence_;
  std::vector<RecentValues> usual_;  // of each rank, where they are not equal
  int told_of_ = -1;                 // the rank that was slow
};

/// No step ends any more: for 4 seconds, and for twice the longest of the last steps. Between steps
/// a pause may take a minute, or three times as long as the longest before.
class StallRule {
 public:
  void step(double now_s, double seconds);
  void paused(metrics::Pause what, double now_s);
  void resumed(double now_s);
  /// A checkpoint is another rule's.
  void hold(bool is_held, double now_s);
  std::string tick(double now_s);

 private:
  RecentValues steps_{16};
  std::map<metrics::Pause, double> longest_pause_;
  std::optional<metrics::Pause> pause_;
  bool is_held_ = false;
  bool has_spoken_ = false;
  double since_s_ = 0;
};

/// A checkpoint that takes longer than 4 seconds and three times the longest before it; the first
/// may take a minute, and as long as 10 MB/s take.
class CheckpointRule {
 public:
  explicit CheckpointRule(std::uint64_t bytes) : bytes_(bytes) {}
  void begun(std::int64_t step, double now_s);
  void saved(double now_s);
  std::string tick(double now_s);

 private:
  std::uint64_t bytes_;
  std::int64_t step_ = 0;
  std::optional<double> began_s_;
  double longest_s_ = 0;
  bool has_spoken_ = false;
};

/// Less room than two checkpoints and 64 MiB take.
class DiskRule {
 public:
  std::string tick(std::uint64_t free_bytes, std::uint64_t checkpoint_bytes);

 private:
  bool has_spoken_ = false;
};

/// All rules of one run. Times are seconds of one steady clock, but for Alert::time_s, which is
/// left to the caller. Each trouble is told once, and again when it had gone and comes back.
class AlertRules {
 public:
  /// Kinds in `off` are not told of.
  AlertRules(AlertContext context, std::set<AlertKind> off);

  /// What there is to say after a step.
  std::vector<Alert> stepped(const metrics::StepFacts& facts);
  /// What there is to say as time goes by; `free_bytes` of the run's disk, where it is known.
  std::vector<Alert> tick(double now_s, std::optional<std::uint64_t> free_bytes);
  std::vector<Alert> ranks_lost(std::int64_t step, int before, int now, const std::string& why,
                                double now_s);
  void paused(metrics::Pause what, double now_s) { stall_.paused(what, now_s); }
  void resumed(double now_s) { stall_.resumed(now_s); }
  void checkpoint_begun(std::int64_t step, double now_s);
  /// `bytes` that it has; 0: unknown.
  void checkpoint_saved(double now_s, std::uint64_t bytes);

 private:
  void add(std::vector<Alert>& alerts, AlertKind kind, Severity severity, std::string message,
           std::string command) const;
  std::string trace_command() const;
  std::string with_lower_rate() const;

  AlertContext context_;
  std::set<AlertKind> off_;
  std::int64_t step_ = 0;
  bool was_finite_ = true;
  SpikeRule spike_;
  DivergenceRule divergence_;
  ThroughputRule throughput_;
  StragglerRule straggler_;
  StallRule stall_;
  CheckpointRule checkpoint_;
  DiskRule disk_;
};

}  // namespace atl::watch
