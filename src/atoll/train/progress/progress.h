#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "atoll/base/quantity.h"
#include "atoll/train/progress/expert_report.h"

namespace atl::train {

using atl::format_count;

/// How a model compares answers, in means over pairs.
struct PreferenceReport {
  double chosen = 0, rejected = 0;  ///< rewards
  double margin = 0;                ///< of the two
  double accuracy = 0;              ///< part of the pairs whose chosen answer has the higher one
};
/// "reward margin 0.412 (chosen 0.103, rejected -0.309)  accuracy 71.9%".
std::string format_preferences(const PreferenceReport& report);

/// What one line about training says; means over the steps since the line before.
struct StepReport {
  std::int64_t step = 0;  ///< steps done
  std::int64_t total_steps = 0;
  double loss = 0;       ///< nats a token
  double grad_norm = 0;  ///< before clipping
  double lr = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;  ///< model FLOP/s over the peak, 0 to 1; none: it is unknown
  double step_ms = 0;
  double data_fraction = 0;  ///< part of the time spent waiting for data, 0 to 1
  double seconds_left = 0;
  int num_ranks = 1;            ///< the members below are told when there are several
  double exposed_fraction = 0;  ///< part of the time that all ranks waited for collectives, 0 to 1
  double sent_bytes = 0;        ///< a step, from the first rank to other data-parallel ranks
  int slowest_rank = 0;
  double slowest_excess = 0;  ///< how much longer its micro-batches take than the fastest rank's
  std::optional<ExpertReport> experts;          ///< of a model that has some
  std::optional<PreferenceReport> preferences;  ///< where answers are compared
  std::int64_t without_loss = 0;  ///< steps so far that were skipped for want of a loss
  std::string rewards;            ///< of reinforcement learning; empty: there are none
};

/// "step 120/400  loss 3.4121  grad_norm 0.84  lr 2.7e-03  9,812 tok/s  MFU 61%  208 ms  ...".
std::string format_step_line(const StepReport& report);
/// "0:58", "12:03", "1:02:03".
std::string format_duration(double seconds);
/// "━━━───  45%  step 720/1600  loss 3.758  10,393 tok/s  left 0:17" in at most `columns` columns:
/// where they are few the bar is shorter, then parts are left out.
std::string format_bar(const StepReport& report, int columns);

/// The one line that moves, on a terminal only: elsewhere every call is a no-op. It fits the width
/// that the terminal has then. Lines printed through it stay above the bar.
class ProgressBar {
 public:
  /// Draws on standard error if that is a terminal and `enabled`.
  explicit ProgressBar(bool enabled);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool active() const { return active_; }
  /// Redraws the bar.
  void draw(const StepReport& report);
  /// Takes the bar off the screen.
  void clear();
  /// Prints a line to standard output, above the bar. Where nobody reads that any more, asks the
  /// run to stop (request_stop); what is lost otherwise, on a full disk, is told at the end.
  void print(const std::string& line);

 private:
  bool active_;
  bool drawn_ = false;
};

}  // namespace atl::train
