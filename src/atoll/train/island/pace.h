#pragma once

#include <cstdint>
#include <optional>

namespace atl::train {

/// How fast an island trains of late, for the coordinator, which gives it as many batches as fit
/// into a round of the fastest. What counts is the time from one step to the next without what was
/// waited for: on a busy machine an island is held up between its steps as much as in them, and
/// steps alone would make it seem as fast as any. It is taken over a round, as leases are, because
/// on a core that it shares an island runs by fits and starts.
class IslandPace {
 public:
  /// `interval`: inner steps of a round; ten at least are taken.
  explicit IslandPace(std::int64_t interval = 1);

  /// So long, since the last step, there was nothing to train on.
  void waited(double seconds) { waited_ += seconds; }
  /// A step took so many seconds and ended at `now`, seconds of a clock that never goes back.
  void stepped(double step_seconds, double now);
  /// 0 before the first step.
  double steps_per_second() const;

 private:
  std::int64_t window_;
  std::int64_t num_steps_ = 0;
  double seconds_ = 0;  // of a step and what follows it, smoothed
  std::optional<double> stepped_at_;
  double waited_ = 0;  // since then
};

}  // namespace atl::train
