#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/param_server/worker.h"

namespace atl::param_server {

/// What a push says beside its gradient.
struct PushArgs {
  bool is_skipped = false;
  double lr = 0;
  double scale = 1;
  double loss = 0;
};

/// What a worker's parameters and gradients are, for its loop: slices by number.
struct WorkerHooks {
  /// The lead: the state of a slice that the run begins with.
  std::function<Load(std::uint32_t slice)> state;
  /// Values that came.
  std::function<void(std::uint32_t slice, std::string_view values)> take_values;
  /// The gradient of the lane that was computed last.
  std::function<std::string(std::uint32_t slice)> gradient;
  std::function<PushArgs(const LaneAt& at)> push_args;
  /// bsp: how the update of a step is made, from the squares of all blocks of the norm in the order
  /// of the flat vector, and the loss of each lane. Must be the same on all workers.
  std::function<Update(std::int64_t step, std::span<const double> squares,
                       std::span<const double> losses)>
      decide;
  /// easgd: moves this worker's values towards those of the servers, which are given, and returns
  /// what is to be added to these.
  std::function<std::string(std::uint32_t slice, std::string_view values)> average;
  /// The lead: the state of a slice, for a checkpoint.
  std::function<void(const State& state)> take_state;
};

/// How the loop goes.
struct WorkerLoopOptions {
  Consistency consistency = Consistency::kBsp;
  std::size_t num_slices = 0;
  std::int64_t period = 1;  ///< easgd: steps between two averages
};

/// What a worker does, one thing after the other: waits, pulls, computes, pushes. A state machine
/// without clock or socket, which the trainer and the simulator both run.
class WorkerLoop {
 public:
  /// `worker` must outlive this.
  WorkerLoop(Worker& worker, const WorkerLoopOptions& options, WorkerHooks hooks);

  struct Job {
    enum class What {
      kWait,     ///< for messages: call next() again when there were any
      kCompute,  ///< the gradients of `at`, then call computed()
      kSave,     ///< a checkpoint of at.step, whose state has come; then call saved()
      kEnd,
    } what = What::kWait;
    LaneAt at;
  };
  Job next();
  void computed();
  void saved();

  /// bsp: the step whose update was decided last, and the decision; -1: none.
  std::int64_t decided_step() const { return decided_step_; }
  /// The largest clock - slowest of any pull so far, and of the last one.
  std::int64_t most_stale() const { return most_stale_; }
  std::int64_t last_stale() const { return last_stale_; }
  /// Steps that this worker's lanes are at, the lowest; nothing: it has no lane.
  std::optional<std::int64_t> position() const;

 private:
  enum class Phase { kIdle, kLoading, kReading, kPulling, kComputing, kPushing, kSumming, kSaving };

  Job wait() const { return {}; }
  Job next_bsp();
  Job next_each();
  Job after_pull();
  void begin_load();
  void begin_read();
  void begin_pull(const LaneAt& at, const Update& update);
  void begin_push();
  void begin_sum();
  void finish_sum();
  void finish_pull_bsp();
  bool still_has(std::int64_t lane) const { return worker_.lanes().contains(lane); }
  std::optional<std::int64_t> unpushed_lane(std::int64_t step) const;

  Worker& worker_;
  WorkerLoopOptions options_;
  WorkerHooks hooks_;
  Phase phase_ = Phase::kIdle;
  LaneAt at_;                        // what the phase is about
  std::vector<std::int64_t> next_;   // of the lane pulled for, on each slice
  std::vector<std::string> pushes_;  // easgd: what is to be added
  std::int64_t pulled_slowest_ = 0;
  std::int64_t most_stale_ = 0;
  std::int64_t last_stale_ = 0;
  // bsp
  std::int64_t values_step_ = -1;  // that the values here are for
  std::set<std::int64_t> pushed_;  // lanes, of that step
  std::vector<Sum> sums_;
  Update update_;  // of decided_step_
  std::int64_t decided_step_ = -1;
  bool has_values_ = false;  // easgd: a model of its own
};

}  // namespace atl::param_server
