#pragma once

// What evaluations of a run have shown so far: which steps were best, and whether it goes on.

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

namespace atl::train {

/// The held-out losses that a run remembers; in its checkpoints. Every rank has the same.
struct HeldOutHistory {
  /// Most that checkpoint.keep_best may ask for.
  static constexpr std::int64_t kMost = 16;

  struct Best {
    std::int64_t step = 0;
    double loss = 0;

    bool operator==(const Best&) const = default;
  };
  std::vector<Best> best;       ///< the lowest, lowest first; of equal ones the earlier first
  std::int64_t last_step = -1;  ///< of the last evaluation
  /// What the next must be below, by train.early_stop_delta, to be better.
  double lowest = std::numeric_limits<double>::infinity();
  std::int64_t since_lowest = 0;  ///< evaluations that were not

  /// Takes an evaluation after `step` steps; one of a step that was taken already is the same.
  /// `keep`: how many of the best are remembered. A loss that is not finite is worse than any.
  void take(std::int64_t step, double loss, std::int64_t keep, double min_delta);
  bool is_best(std::int64_t step) const;
  std::set<std::int64_t> best_steps() const;

  bool operator==(const HeldOutHistory&) const = default;

  /// As numbers that ranks broadcast, and back.
  std::vector<double> to_numbers() const;
  static HeldOutHistory from_numbers(const std::vector<double>& numbers);
};

}  // namespace atl::train
