#pragma once

// A study in virtual time: the tuner that decides about real runs, with trials that take no time.

#include <functional>

#include "atoll/tune/trial/tuner.h"

namespace atl::tune {

/// What takes the place of runs.
struct SimulatedTrials {
  /// Values of the objectives at `step` of a trial that comes from trial.reached().
  std::function<std::vector<double>(const Trial& trial, std::int64_t step)> train;
  /// Virtual seconds that it takes.
  std::function<double(const Trial& trial, std::int64_t step)> seconds;
  int workers = 1;
};

/// What came of it.
struct SimulatedOutcome {
  History history;
  double seconds = 0;      ///< until the last worker was done
  std::int64_t steps = 0;  ///< that all trials took
  std::vector<Event> events;
};

/// Runs a study to its end. A pure function of its arguments.
SimulatedOutcome simulate_study(const Problem& problem, const SimulatedTrials& trials);

}  // namespace atl::tune
