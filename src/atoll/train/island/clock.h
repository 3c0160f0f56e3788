#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace atl::train {

/// How far the whole run is, by which islands of any speed have the same learning rate at the same
/// time. A lease says how far the run was when its round began, and how far all islands get in it;
/// between the two this island's steps count in proportion. Where all islands are as fast, and as
/// many as the run is planned for, a step of an island is a step of the schedule, exactly.
class IslandClock {
 public:
  /// What it is made of: a checkpoint keeps it.
  struct State {
    std::int64_t round_begin = 0;    ///< batches of the run, done before this round
    std::int64_t round_batches = 0;  ///< that all islands do in it
    std::int64_t round_steps = 0;    ///< that this island takes in it
    std::int64_t steps_taken = 0;    ///< of these
  };

  /// `islands`: that the run is planned for, which share the batches of a step of the schedule.
  explicit IslandClock(std::int64_t islands) : islands_(static_cast<double>(islands)) {}

  /// A lease of `steps` batches came; see island::Lease.
  void begin_round(std::int64_t round_begin, std::int64_t round_batches, std::int64_t steps) {
    state_ = {round_begin, round_batches, steps, 0};
  }
  void stepped() { ++state_.steps_taken; }

  /// The step of the schedule that the next step is.
  std::int64_t schedule_step() const {
    // Doubles, because a coordinator may say any numbers; those of real runs are exact in them.
    constexpr double kMost = 1LL << 53;
    return static_cast<std::int64_t>(std::min(kMost, done() / islands_));
  }
  /// Steps of this island until the schedule is at `total_steps`, if it goes on at the pace of this
  /// round.
  std::int64_t steps_left(std::int64_t total_steps) const {
    const double batches = static_cast<double>(total_steps) * islands_ - done();
    if (state_.round_batches <= 0) return total_steps;
    constexpr double kMost = 1LL << 53;
    const double steps = batches * static_cast<double>(state_.round_steps) /
                         static_cast<double>(state_.round_batches);
    return static_cast<std::int64_t>(std::clamp(std::ceil(steps), 0.0, kMost));
  }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  double done() const {
    if (state_.round_steps <= 0) return static_cast<double>(state_.round_begin);
    return static_cast<double>(state_.round_begin) + static_cast<double>(state_.steps_taken) *
                                                         static_cast<double>(state_.round_batches) /
                                                         static_cast<double>(state_.round_steps);
  }

  double islands_;
  State state_;
};

}  // namespace atl::train
