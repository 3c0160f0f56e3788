#pragma once

// The rules that decide when to raise an alert, from what the run reports. They use no clock, file
// or thread of their own: the caller gives times and sizes.

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

/// Facts about the run that rules compare with or that commands in alerts name.
struct AlertContext {
  std::string run_dir;
  std::string resume;  ///< the shell command that resumes the run
  double lr = 0;       ///< optim.lr of the run
  std::int64_t pid = 0;
  /// False where ranks have unequal work by design (stages of a pipeline, experts): each rank is
  /// then compared with its own earlier times.
  bool ranks_are_equal = true;
  std::uint64_t checkpoint_bytes = 0;  ///< of one checkpoint, estimated
};

/// The last values of a number, at most `most` of them. Statistics of no values are 0.
class RecentValues {
 public:
  explicit RecentValues(std::size_t most) : most_(most) {}

  void add(double value);
  void clear() { values_.clear(); }
  std::size_t size() const { return values_.size(); }
  const std::deque<double>& values() const { return values_; }
  double median() const;
  /// The value that the fraction `part` of the values does not exceed.
  double quantile(double part) const;
  double mean() const;
  double largest() const;
  /// The median of the distances from the median.
  double median_deviation() const;
  double standard_deviation() const;

 private:
  std::size_t most_;
  std::deque<double> values_;
};

/// Alerts when the loss of one step is far above the last 32 losses. Its distance above their
/// median must be more than 8 standard deviations (estimated from the median deviation), more than
/// a tenth of the median, and more than 1.5 times the distance of the largest. While fewer than 16
/// losses are known, the loss must be above twice the largest plus 2 nats.
class SpikeRule {
 public:
  /// Takes the loss of the next step. Returns the message of an alert; empty: no alert.
  std::string step(double loss);

 private:
  // The largest loss that is no spike; nothing: no loss is known yet.
  std::optional<double> most() const;

  RecentValues before_{32};
  std::int64_t quiet_ = 0;  // steps in which a spike raises no new alert
};

/// Alerts when the mean loss rises: the mean of the last 50 steps is above the lowest such mean so
/// far by more than 5% of that mean and by more than 6 standard errors of the difference.
class DivergenceRule {
 public:
  std::string step(double loss);

 private:
  RecentValues recent_{50};
  std::optional<double> best_;
  bool has_spoken_ = false;
};

/// Alerts when steps become slow: the median of the last steps is more than twice the median of the
/// steps before, and more than 1.5 times their 95% quantile. The last steps are those of the last 3
/// seconds, and at least two.
class ThroughputRule {
 public:
  std::string step(double seconds);

 private:
  std::deque<double> evidence_;
  RecentValues usual_{200};
  bool has_spoken_ = false;
};

/// Alerts when one rank is slow: in nine of ten of the last steps (as in ThroughputRule) its micro
/// batch took more than 1.5 times the median of the other ranks.
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
  int told_of_ = -1;                 // the rank of the last alert, while it is slow; -1: none
};

/// Alerts when no step has ended for more than 4 seconds and for more than twice the longest of the
/// last 16 steps. A pause may take a minute, or three times the longest earlier pause of its kind.
class StallRule {
 public:
  void step(double now_s, double seconds);
  void paused(metrics::Pause what, double now_s);
  void resumed(double now_s);
  /// While held, raises no alert: a checkpoint is being written, which CheckpointRule watches.
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

/// Alerts when a checkpoint takes more than 4 seconds and more than three times the longest before
/// it. The first may take a minute plus the time to write it at 10 MB/s.
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

/// Alerts when the disk has less room than two checkpoints and 64 MiB.
class DiskRule {
 public:
  std::string tick(std::uint64_t free_bytes, std::uint64_t checkpoint_bytes);

 private:
  bool has_spoken_ = false;
};

/// All rules of one run. Times are seconds of one steady clock; the caller fills in Alert::time_s.
/// Each problem raises one alert, and another when the problem has ended and comes back. Not safe
/// for several threads.
class AlertRules {
 public:
  /// Alerts of the kinds in `off` are not returned.
  AlertRules(AlertContext context, std::set<AlertKind> off);

  /// The alerts after a step.
  std::vector<Alert> stepped(const metrics::StepFacts& facts);
  /// The alerts that depend on time and on the disk; call this regularly. `free_bytes`: of the
  /// run's disk, where known.
  std::vector<Alert> tick(double now_s, std::optional<std::uint64_t> free_bytes);
  std::vector<Alert> ranks_lost(std::int64_t step, int before, int now, const std::string& why,
                                double now_s);
  void paused(metrics::Pause what, double now_s) { stall_.paused(what, now_s); }
  void resumed(double now_s) { stall_.resumed(now_s); }
  void checkpoint_begun(std::int64_t step, double now_s);
  /// `bytes`: the size of the checkpoint; 0: unknown.
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
