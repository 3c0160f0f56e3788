#pragma once

// What decides which trial goes on.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/tune/search/trial.h"

namespace atl::tune {

/// What schedulers go by.
struct Rules {
  std::uint64_t seed = 1;
  std::int64_t max_steps = 1;
  std::int64_t min_steps = 1;
  std::int64_t every = 1;
  std::int64_t eta = 3;
  int population = 0;
  std::int64_t interval = 1;
  double quantile = 0.25;
};

/// A study as a scheduler sees it.
struct ScheduleView {
  const std::vector<Trial>& trials;
  bool has_room = true;     ///< another trial may be suggested
  bool is_waiting = false;  ///< trials are under way
  /// What `trial` has shown at `step`, lower is better; infinity where it failed before. The trial
  /// must have come there or have failed.
  std::function<double(const Trial& trial, std::int64_t step)> value;

  /// Whether the trial has come to that step, or will never.
  static bool has_come(const Trial& trial, std::int64_t step) {
    return trial.at(step) != nullptr || trial.has_failed();
  }
};

/// What becomes of a study or a trial.
struct Move {
  enum class Kind : std::uint8_t {
    kNew,   ///< suggest a trial that goes to `step`
    kGoOn,  ///< `trial` goes to `step`
    kStop,  ///< `trial` is over; `why`
    kFork,  ///< a new trial takes over from `trial` at `from`, as `member`, and goes to `step`
  };
  Kind kind = Kind::kNew;
  int trial = -1;
  std::int64_t step = 0;
  int bracket = 0;
  int member = -1;
  std::int64_t from = 0;
  std::string why;
};

/// Decides by what trials have shown. Functions of the view and the rules alone.
class Scheduler {
 public:
  explicit Scheduler(const Rules& rules) : rules_(rules) {}
  virtual ~Scheduler() = default;

  /// What a free worker may begin: nothing when all that is left must wait for what is under way.
  /// The moves are made together.
  virtual std::vector<Move> next(const ScheduleView& view) const = 0;
  /// What becomes of a trial that has shown something at its target, and has not all steps:
  /// kGoOn, kStop, or nothing, which leaves it to next().
  virtual std::vector<Move> judge(const ScheduleView&, const Trial&) const { return {}; }

 protected:
  const Rules& rules() const { return rules_; }

 private:
  Rules rules_;
};

/// Steps of the rungs: min, min * eta, ..., and max last.
std::vector<std::int64_t> rung_steps(std::int64_t min_steps, std::int64_t max_steps,
                                     std::int64_t eta);

}  // namespace atl::tune
