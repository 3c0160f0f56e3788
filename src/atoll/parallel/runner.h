#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "atoll/nn/kv_cache.h"
#include "atoll/nn/model.h"
#include "atoll/parallel/param_store.h"
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
  std::size_t stage = 0;
  PassKind kind = PassKind::kForward;
  bool idle = false;  ///< this rank has no micro-batch and only takes part in what the others do
  Moment moment = Moment::kAcquire;
};

/// Walks a model's stages over micro-batches of one fixed shape, in memory planned beforehand:
/// forward through all stages, then B and W of each, last stage first. One pipeline stage.
class Runner {
 public:
  /// Micro-batches are (batch, length) tokens. Model and store must outlive the runner.
  Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch, std::int64_t length);

  /// When what runs, for those that share its memory.
  const StageClock& clock() const { return clock_; }

  /// `listener` hears of each point of each pass, on the thread that runs it; empty: nobody does.
  void listen(std::function<void(const PassEvent& event)> listener) {
    listener_ = std::move(listener);
  }

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// Forward and backward; adds to the gradients. Returns the sum of the micro-batch's losses, in
  /// nats. `run` gives stream, seed, step and loss_scale.
  double train(Run run, const Batch& batch);
  /// Takes this rank's part in what the others do while it has no micro-batch: gathers and reduces.
  void idle(Run run, bool training);
  /// Forward only; returns the sum of the losses, in nats.
  double evaluate(Run run, const Batch& batch);
  /// Forward of `batch.tokens` after the `cache.length` positions already cached; the caller then
  /// advances the cache. Returns the head's input, (B, T, C).
  Tensor generate(Run run, const Batch& batch, nn::KvCache& cache);
  /// Each position's loss of the last train() or evaluate(), (B, T).
  Tensor losses() const { return edges_.back(); }

 private:
  struct StagePlan {
    nn::Footprint footprint;
    std::vector<int> kept_requests, owed_requests;
    int y_request = -1;   // the edge after this stage
    int dy_request = -1;  // its gradient; the head has none
    int forward_scratch = -1, backward_scratch = -1;
    std::vector<Tensor> kept, owed;
  };

  std::int64_t last_use(unsigned need, std::size_t stage) const;
  void request_edges(MemoryPlan& plan, std::size_t stage);
  nn::Pass pass(std::size_t stage, const Batch& batch) const;
  template <typename Compute>
  void visit(Run& run, std::size_t stage, PassKind kind, bool idle, Compute&& compute);
  void forward(Run& run, const Batch& batch, nn::KvCache* cache);
  double sum_of_losses() const;

  nn::Model& model_;
  ParamStore& store_;
  Use use_;
  Spec tokens_;
  StageClock clock_;
  std::vector<StagePlan> stages_;
  std::vector<Tensor> edges_;           // edges_[i]: the output of stage i
  std::vector<Tensor> edge_gradients_;  // edge_gradients_[i]: its gradient
  const Arena* arena_ = nullptr;
  std::function<void(const PassEvent& event)> listener_;
};

}  // namespace atl::parallel
