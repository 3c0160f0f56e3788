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

/// A point of a pass over one stage.
struct PassEvent {
  enum class Moment {
    kAcquire,  ///< the store is asked for what the stage needs
    kCompute,  ///< it is there
    kRelease,  ///< the stage is done
    kEnd,
  };
  StagePass pass;
  bool idle = false;  ///< this rank has no micro-batch and only takes part in what the others do
  Moment moment = Moment::kAcquire;
};

/// Runs a schedule's actions on a model's stages over micro-batches of one fixed shape, in memory
/// planned beforehand from that same schedule. In a pipeline the model is this rank's part of it,
/// and the schedule has the transfers to the ranks beside this one.
class Runner {
 public:
  /// Micro-batches are (batch, length) tokens. Model and store must outlive the runner.
  /// One micro-batch at a time: schedule_sequential() to train, schedule_forward() otherwise.
  Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch, std::int64_t length);
  /// By a schedule of its own, with as many micro-batches at a time as that has.
  Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch, std::int64_t length,
         RankSchedule schedule);

  /// The ranks of the pipeline, before the first call where the schedule has transfers. Neighbours
  /// on its ring need channels of their own (Axis::point_to_point). Must outlive the runner.
  void connect(comm::Group& pipeline) { transfers_.connect(pipeline); }

  /// When what runs, for those that share its memory.
  const Schedule& schedule() const { return schedule_; }

  /// `listener` hears of each point of each pass, on the thread that runs it; empty: nobody does.
  void listen(std::function<void(const PassEvent& event)> listener) {
    listener_ = std::move(listener);
  }

  /// From here on forward_backward() of one micro-batch on a GPU is captured and launched as a
  /// graph, but where ops are profiled or somebody listens. Not in a pipeline, and of a store that
  /// queues the same work in each round.
  void use_graphs() { graphs_ = std::make_unique<PassGraphs>(); }
  /// Null before use_graphs().
  const PassGraphs* graphs() const { return graphs_.get(); }

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// Forward and backward; adds to the gradients, and leaves losses(). `run` gives stream, seed,
  /// step and loss_scale. In a pipeline every rank calls it with the same micro-batches; throws
  /// PeerError when one is lost.
  void forward_backward(Run run, std::span<const Batch> micro_batches);
  /// The same; waits for the losses, and returns their sum over the micro-batches, in nats; 0 where
  /// has_losses() is false.
  double train(Run run, std::span<const Batch> micro_batches);
  double train(Run run, const Batch& batch) { return train(run, {&batch, 1}); }
  /// Takes this rank's part in what the others do while it has no micro-batch: gathers and reduces.
  void idle(Run run, bool training);
  /// Forward only; returns the sum of the losses, in nats; 0 where has_losses() is false. In a
  /// pipeline the ranks before this one may be as many calls ahead.
  double evaluate(Run run, const Batch& batch);
  /// Forward of `batch.tokens`, at positions from `cache.length` on, after those already cached;
  /// the caller then advances the cache. Returns the head's input, (B, T, C), of ranks that share
  /// products each its rows; undefined where another rank of a pipeline has it.
  Tensor generate(Run run, const Batch& batch, nn::KvCache& cache);
  /// Whether this rank has the head: the others have no losses.
  bool has_losses() const { return !stages_.back().sends_output; }
  /// Seconds that train() and evaluate() have waited for other ranks of the pipeline, since the
  /// beginning.
  double waited_seconds() const { return transfers_.waited_seconds(); }
  /// Each position's loss of a micro-batch of the last train() or evaluate(), (B, T).
  Tensor losses(std::size_t micro_batch = 0) const { return outputs_[micro_batch]; }

 private:
  // All passes, or the first micro-batch's forward passes.
  template <typename Compute>
  void visit_passes(Run& run, bool all, bool idle, Compute&& compute);
  void request_stage(MemoryPlan& plan, std::size_t stage);
  /// Carries out the transfers before this tick, and begins what moves beside it.
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
  std::vector<std::pair<int, int>> scratch_requests_;  // of each stage, forward and backward
  std::vector<int> output_requests_;
  std::vector<Tensor> outputs_;  // of the last stage, one a micro-batch
  const Arena* arena_ = nullptr;
  std::int64_t next_tick_ = 0;  // of a walk
  DeviceBatches device_batches_;
  std::unique_ptr<PassGraphs> graphs_;
  std::function<void(const PassEvent& event)> listener_;
};

/// The sum of a micro-batch's losses, in their order and in double. The host reads them.
double sum_of_losses(const Tensor& losses);

}  // namespace atl::parallel
