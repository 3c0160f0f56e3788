#pragma once

// A study as its events tell it.

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "atoll/tune/trial/event.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// What events have come to. A pure fold: the same events give the same history.
class History {
 public:
  /// Throws Error(kDamaged) for an event that cannot have happened.
  void apply(const Event& event);

  const std::vector<Trial>& trials() const { return trials_; }
  const Trial& trial(int number) const;
  /// (trial, step) of each result, in the order in which they came.
  const std::vector<std::pair<int, std::int64_t>>& results() const { return results_; }
  std::int64_t tokens() const { return tokens_; }

 private:
  std::vector<Trial> trials_;
  std::vector<std::pair<int, std::int64_t>> results_;
  std::int64_t tokens_ = 0;
};

/// A measured value of objective `index` such that lower is better; infinity for NaN.
double cost(const std::vector<Objective>& objectives, std::size_t index, double value);

/// The trials that no other one beats in all objectives, by their last measurements; of one
/// objective the best, by number where several are equal. Of trials that came to `step` or, where
/// none has, of those that came furthest.
std::vector<int> best_trials(const History& history, const std::vector<Objective>& objectives,
                             std::int64_t step);

}  // namespace atl::tune
