#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/nn/kv_cache.h"
#include "atoll/nn/model.h"
#include "atoll/parallel/runner/device_batches.h"
#include "atoll/parallel/runner/pass_graphs.h"
#include "atoll/parallel/runner/stage_plan.h"
#include "atoll/parallel/runner/transfers.h"
#include "atoll/parallel/schedule/rank_schedule.h"
#include "atoll/parallel/schedule/schedule.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/tensor/arena.h"
#include "atoll/tensor/batch.h"

namespace atl::parallel {

/// A moment of a pass over one stage.
struct PassEvent {
  enum class Moment {
    kAcquire,  ///< before ParamStore::acquire
    kCompute,  ///< after ParamStore::acquire, before the stage's actions
    kRelease,  ///< after the stage's actions, before ParamStore::release
    kEnd,      ///< after ParamStore::release
  };
  StagePass pass;
  bool idle = false;  ///< this rank has no micro-batch: it only takes part in collectives
  Moment moment = Moment::kAcquire;
};

/// Runs the actions of a schedule: passes of micro-batches of one fixed shape over the stages of a
/// model. The memory is planned beforehand from the same schedule. In a pipeline, `model` is this
/// rank's part of the model, and the schedule has the transfers from and to other ranks.
class Runner {
 public:
  /// One micro-batch at a time: schedule_sequential() to train, schedule_forward() otherwise.
  /// Micro-batches are (batch, length) tokens. Model and store must outlive the runner.
  Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch, std::int64_t length);
  /// The same with another schedule, which says how many micro-batches a call has.
  Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch, std::int64_t length,
         RankSchedule schedule);

  /// `pipeline`: the ranks of the pipeline; must outlive the runner. To be called before the first
  /// pass if the schedule has transfers. The group's pairs of neighbours need channels of their own
  /// (comm::Axis::point_to_point).
  void connect(comm::Group& pipeline) { transfers_.connect(pipeline); }

  /// The order of actions and passes, by which a store plans its memory.
  const Schedule& schedule() const { return schedule_; }

  /// From now on `listener` is called at each moment of each pass, on the thread that runs the
  /// pass. An empty function ends that.
  void listen(std::function<void(const PassEvent& event)> listener) {
    listener_ = std::move(listener);
  }

  /// From now on forward_backward() of one micro-batch runs as a graph, except while ops are
  /// profiled or there is a listener: see PassGraphs. Only on a GPU, not in a pipeline, and with a
  /// store that queues the same work in each round.
  void use_graphs() { graphs_ = std::make_unique<PassGraphs>(); }
  /// Null before use_graphs().
  const PassGraphs* graphs() const { return graphs_.get(); }

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// Forward and backward: adds to the gradients and writes losses(). `run` gives stream, seed,
  /// step and loss_scale. On a GPU the work may still be queued when this returns. In a pipeline
  /// every rank calls it with the same micro-batches; throws PeerError when a rank is lost.
  void forward_backward(Run run, std::span<const Batch> micro_batches);
  /// Like forward_backward(), but waits for the losses and returns their sum over the
  /// micro-batches, in nats; 0 where has_losses() is false.
  double train(Run run, std::span<const Batch> micro_batches);
  double train(Run run, const Batch& batch) { return train(run, {&batch, 1}); }
  /// For a round in which this rank has no micro-batch: takes part in the gathers and reductions of
  /// the other ranks' passes.
  void idle(Run run, bool training);
  /// Forward only; returns the sum of the losses, in nats; 0 where has_losses() is false. In a
  /// pipeline a rank does not wait until later ranks are done: a rank k places earlier may be k
  /// calls ahead.
  double evaluate(Run run, const Batch& batch);
  /// Forward of `batch.tokens` at the positions from `cache.length` on, which the caller advances;
  /// of a paged cache (CPU only) of rows of several sequences. Returns the head's input, (B, T, C),
  /// valid until the next call; with tensor parallelism, this rank's rows of it; undefined on a
  /// rank of a pipeline that does not have the last stage.
  Tensor generate(Run run, const Batch& batch, nn::KvCache& cache);
  /// Whether this rank has the last stage, which makes the losses.
  bool has_losses() const { return !stages_.back().sends_output; }
  /// Seconds since the beginning that this rank has waited for transfers of the pipeline.
  double waited_seconds() const { return transfers_.waited_seconds(); }
  /// The loss of each position, in nats, (B, T): of a micro-batch of the last training or
  /// evaluation call. Only where has_losses().
  Tensor losses(std::size_t micro_batch = 0) const { return outputs_[micro_batch]; }

 private:
  // Walks over all passes, or over the forward passes of the first micro-batch. compute(pass) runs
  // between the store's acquire() and release().
  template <typename Compute>
  void visit_passes(Run& run, bool all, bool idle, Compute&& compute);
  void request_stage(MemoryPlan& plan, std::size_t stage);
  /// Carries out all transfers of earlier ticks, and begins those that run during this tick.
  void transfer_until(std::int64_t tick);
  void run_passes(Run& run, std::span<const Batch> micro_batches, nn::KvCache* cache);
  nn::Pass layer_pass(const Action& action, const Batch& batch) const;
  void act(Run& run, const Action& action, const Batch& batch, nn::KvCache* cache);
  Tensor moved_by(const Action& action) const;

  nn::Model& model_;
  ParamStore& store_;
  Use use_;
  Spec tokens_;
  Schedule schedule_;
  Transfers transfers_;
  std::vector<StagePlan> stages_;
  std::vector<std::pair<int, int>> scratch_requests_;  // by stage: forward, backward
  std::vector<int> output_requests_;
  std::vector<Tensor> outputs_;  // of the last stage, by micro-batch
  const Arena* arena_ = nullptr;
  std::int64_t next_tick_ = 0;  // of the current walk
  DeviceBatches device_batches_;
  std::unique_ptr<PassGraphs> graphs_;
  std::function<void(const PassEvent& event)> listener_;
};

/// The sum of a micro-batch's losses (f32 or f64) on the host, in double and in their order. Copies
/// losses of a GPU to the host first.
double sum_of_losses(const Tensor& losses);

}  // namespace atl::parallel
