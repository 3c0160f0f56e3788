#pragma once

// What is told of each step, to people, to an observer, and to the other ranks.

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "atoll/train/train_run.h"

namespace atl::train {

/// Tells of the steps of a run. Every rank has one and calls the same.
class StepTelemetry {
 public:
  /// `run` must outlive this.
  explicit StepTelemetry(TrainRun& run) : run_(run) {}

  /// Reports a step that was made, with so many left.
  void report(const StepResult& result, double lr, std::int64_t steps_left);
  /// Tells the other ranks how the step went here, and hears how it went there. Returns whether
  /// other ranks are wanted.
  bool share(const StepResult& result, double step_seconds);
  /// The same for a rank that shares steps with nobody.
  void keep();
  /// Ranks have changed: counts from here.
  void begin_again() { waited_before_ = 0; }

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t asked_trace_steps();

  TrainRun& run_;
  double waited_before_ = 0;  // seconds, until the last step's facts
  Clock::time_point look_for_request_at_;
  std::filesystem::path asked_trace_;  // of the lead: the file of the last request
};

/// Tells run.observer of the step of that number.
void tell_observer(const TrainRun& run, const StepResult& result, std::int64_t step);

}  // namespace atl::train
