#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "atoll/nn/kv_cache.h"
#include "atoll/nn/model.h"
#include "atoll/parallel/param_store.h"
#include "atoll/parallel/schedule.h"
#include "atoll/tensor/arena.h"
#include "atoll/tensor/batch.h"

namespace atl::parallel {

/// What a Runner's memory is planned for.
enum class Use {
  kTrain,     ///< forward and backward, and evaluation in between
  kEvaluate,  ///< forward to the losses
  kGenerate,  ///< forward with a KvCache, up to the head's input
};

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
/// planned beforehand from that same schedule. One rank: a schedule without transfers.
class Runner {
 public:
  /// Micro-batches are (batch, length) tokens. Model and store must outlive the runner.
  /// One micro-batch at a time: schedule_sequential() to train, schedule_forward() otherwise.
  Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch, std::int64_t length);
  /// Trains by a schedule of its own, with as many micro-batches at a time as that has. A slot's
  /// memory is planned from its first micro-batch to its last: exact for one micro-batch, an upper
  /// bound where several take turns.
  Runner(nn::Model& model, ParamStore& store, std::int64_t batch, std::int64_t length,
         std::vector<Action> actions);

  /// When what runs, for those that share its memory.
  const Schedule& schedule() const { return schedule_; }

  /// `listener` hears of each point of each pass, on the thread that runs it; empty: nobody does.
  void listen(std::function<void(const PassEvent& event)> listener) {
    listener_ = std::move(listener);
  }

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// Forward and backward; adds to the gradients, and leaves losses(). `run` gives stream, seed,
  /// step and loss_scale.
  void forward_backward(Run run, std::span<const Batch> micro_batches);
  /// The same; waits for the losses, and returns their sum over the micro-batches, in nats.
  double train(Run run, std::span<const Batch> micro_batches);
  double train(Run run, const Batch& batch) { return train(run, {&batch, 1}); }
  /// Takes this rank's part in what the others do while it has no micro-batch: gathers and reduces.
  void idle(Run run, bool training);
  /// Forward only; returns the sum of the losses, in nats.
  double evaluate(Run run, const Batch& batch);
  /// Forward of `batch.tokens`, at positions from `cache.length` on, after those already cached;
  /// the caller then advances the cache. Returns the head's input, (B, T, C).
  Tensor generate(Run run, const Batch& batch, nn::KvCache& cache);
  /// Each position's loss of a micro-batch of the last train() or evaluate(), (B, T).
  Tensor losses(std::size_t micro_batch = 0) const { return outputs_[micro_batch]; }

 private:
  // What one micro-batch in flight has of a stage.
  struct Slot {
    int y_request = -1;   // the edge after this stage; the last stage's are outputs_
    int dy_request = -1;  // its gradient; the last stage has none
    std::vector<int> kept_requests, owed_requests;
    Tensor y, dy;
    std::vector<Tensor> kept, owed;
  };
  struct StagePlan {
    nn::Footprint footprint;
    std::vector<Slot> slots;
    int forward_scratch = -1, backward_scratch = -1;
  };

  Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch, std::int64_t length,
         std::vector<Action> actions);
  std::int64_t last_use(unsigned need, std::size_t stage, std::size_t slot) const;
  void request_edges(MemoryPlan& plan, std::size_t stage, std::size_t slot);
  void request_stage(MemoryPlan& plan, std::size_t stage);
  int request_scratch(MemoryPlan& plan, std::size_t stage, ActionKind first_kind,
                      ActionKind last_kind) const;
  void bind_slot(const Arena& arena, const nn::Footprint& footprint, Slot& slot) const;
  // Of all passes, or of the first micro-batch's forward passes.
  template <typename Compute>
  void visit_passes(Run& run, bool all, bool idle, Compute&& compute);
  void run_passes(Run& run, std::span<const Batch> micro_batches, nn::KvCache* cache);
  nn::Pass layer_pass(const Action& action, const Batch& batch) const;
  void act(Run& run, const Action& action, const Batch& batch, nn::KvCache* cache);

  nn::Model& model_;
  ParamStore& store_;
  Use use_;
  Spec tokens_;
  Schedule schedule_;
  std::vector<StagePlan> stages_;
  std::vector<int> output_requests_;
  std::vector<Tensor> outputs_;  // of the last stage, one a micro-batch
  const Arena* arena_ = nullptr;
  std::function<void(const PassEvent& event)> listener_;
};

/// The sum of a micro-batch's losses, in their order and in double. The host reads them.
double sum_of_losses(const Tensor& losses);

}  // namespace atl::parallel
