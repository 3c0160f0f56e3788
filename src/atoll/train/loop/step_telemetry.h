#pragma once

// The reports about each step: to the user, to an observer, and to the other ranks.

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// Reports the steps of a run. Every rank has one object, and all ranks make the same calls.
class StepTelemetry {
 public:
  /// `run` must outlive this.
  explicit StepTelemetry(TrainRun& run) : run_(run) {}

  /// Reports a step that was taken; `steps_left` steps follow it.
  void report(const StepResult& result, double lr, std::int64_t steps_left);
  /// Sends facts about this rank's step to the other ranks and receives theirs. Returns whether the
  /// lead wants to change the set of ranks.
  bool share(const StepResult& result, double step_seconds);
  /// The same for a rank that trains without other ranks.
  void keep();
  /// The set of ranks has changed: counts waiting time from here.
  void begin_again() { waited_before_ = 0; }

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t asked_trace_steps();

  TrainRun& run_;
  double waited_before_ = 0;  // seconds, until the last step's facts
  Clock::time_point look_for_request_at_;
  std::filesystem::path asked_trace_;  // of the lead: the file of the last requested trace
};

/// Tells run.observer about step `step`.
void tell_observer(const TrainRun& run, const StepResult& result, std::int64_t step);

}  // namespace atl::train
