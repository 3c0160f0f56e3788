#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "atoll/data/loader.h"
#include "atoll/optim/schedule.h"
#include "atoll/parallel/layout/micro_batches.h"
#include "atoll/param_server/connection.h"
#include "atoll/param_server/worker_loop.h"
#include "atoll/train/checkpoint/run_model.h"
#include "atoll/train/step/step.h"
#include "atoll/train/step/step_passes.h"

namespace atl::train {

/// A worker's side of a run with parameter servers (sync.mode = ps): what its loop
/// (param_server/worker_loop.h) asks for, made with the trainer's model, data and schedule.
class ServerWorker {
 public:
  /// What all of these must outlive.
  struct Parts {
    const TrainConfig& config;
    RunModel& model;
    const data::SampleSource& samples;
    const optim::Schedule& schedule;
  };
  /// `identity`: of the run, the same on all workers. `step`: how many are taken in what the model
  /// has now. Begins to connect. Throws Error(kUser) for a model that servers cannot have.
  ServerWorker(const Parts& parts, std::string identity, std::int64_t step);
  ~ServerWorker();

  /// Asked while it waits: whether this worker was asked to end the run.
  using WantsStop = std::function<bool()>;

  /// Waits until the run has begun; returns the step that this worker goes on with. Nothing: it was
  /// stopped before.
  std::optional<std::int64_t> begin(const WantsStop& wants_stop);

  struct Turn {
    enum class What {
      kStep,  ///< `step` steps are taken now
      kSave,  ///< the model has the state of `step`, for a checkpoint; then call saved()
      kEnd,   ///< the run has ended
    } what = What::kEnd;
    std::int64_t step = 0;
    StepResult result;           ///< of a step; where pushes are updates, of this worker's part
    std::int64_t staleness = 0;  ///< the most that a pull of it lacked
  };
  /// Waits for, and works on, what comes next.
  Turn turn(const WantsStop& wants_stop, metrics::Timeline* timeline);
  void saved() { loop_.saved(); }
  /// Tells the scheduler the last things.
  void finish() { connection_.finish(); }
  /// Why the run has ended; "" it is done.
  const std::string& why_ended() const { return *worker_.ended(); }
  double waited_seconds() const { return waited_seconds_; }

 private:
  struct LaneData {
    std::unique_ptr<data::Loader> loader;
    std::int64_t step = 0;  // that it gives next
  };

  param_server::RunSpec make_spec() const;
  param_server::WorkerHooks hooks();
  void pump(const WantsStop& wants_stop);
  void compute(const param_server::LaneAt& at, metrics::Timeline* timeline);
  MicroBatchResult run_lane(const param_server::LaneAt& at, metrics::Timeline* timeline);
  void update_own(const param_server::LaneAt& at, double norm);
  void note(const param_server::LaneAt& at, const MicroBatchResult& micro, double norm);
  param_server::Load state_of(std::uint32_t slice) const;
  void take_state(const param_server::State& state);
  param_server::PushArgs push_args(const param_server::LaneAt& at) const;
  param_server::Update decide(std::int64_t step, std::span<const double> squares,
                              std::span<const double> losses);
  std::string average(std::uint32_t slice, std::string_view values);
  std::int64_t count_targets(std::int64_t step) const;
  Tensor values_of(std::uint32_t slice) const;
  Tensor gradients_of(std::uint32_t slice) const;
  double share_of(std::int64_t lane) const;
  bool is_bsp() const { return spec_.consistency == param_server::Consistency::kBsp; }
  TrainState& state() const { return parts_.model.state(); }

  Parts parts_;
  std::int64_t first_step_;
  parallel::MicroBatchPlan plan_;  // of the micro-batches of a step over the lanes
  param_server::RunSpec spec_;
  param_server::Worker worker_;
  param_server::WorkerLoop loop_;
  std::map<std::int64_t, LaneData> data_;
  std::optional<param_server::WorkerLoop::Job> job_;  // that is still to be done
  std::int64_t step_ = 0;                             // that is under way
  bool has_result_ = false;
  StepResult result_;          // of that step
  std::int64_t computed_ = 0;  // lanes, for it
  std::int64_t staleness_ = 0;
  double lane_loss_ = 0;  // the sum over the last lane's micro-batches
  double lane_norm_ = 0;  // of its gradient, as the mean over its samples
  bool lane_has_targets_ = true;
  std::int64_t first_sample_ = 0;
  std::int64_t own_updates_ = 0;  // easgd
  double waited_seconds_ = 0;
  bool has_asked_to_stop_ = false;
  param_server::WorkerConnection connection_;  // last: it uses the worker
};

}  // namespace atl::train
