#pragma once

// The exchanges of a step: one for a rank alone, and a decorator for each way to share a step.
// make_step_exchange() combines the decorators that a layout needs.

#include <memory>
#include <utility>

#include "atoll/comm/group.h"
#include "atoll/parallel/compress/onebit_optimizer.h"
#include "atoll/parallel/runner/pipeline_part.h"
#include "atoll/parallel/state/replica.h"
#include "atoll/parallel/store/store_data_parallel.h"
#include "atoll/train/step/step_exchange.h"
#include "atoll/train/step/step_passes.h"

namespace atl::train {

/// One rank with the whole step.
class OwnStep : public StepExchange {
 public:
  explicit OwnStep(TrainState& state) : state_(state) {}

  MicroBatchResult pass(const Run& run, const PassInput& input) override;
  void losses(Stream& /*stream*/, const PassInput& /*input*/, MicroBatchResult& /*own*/) override {}
  void nonfinite(std::vector<std::int64_t>& /*samples*/) override {}
  void reduce(Run& run) override;
  double grad_norm(Run& run) override;
  void prepare(StepProgress& progress, bool waits) override;
  void update(Run& run, StepProgress& progress) override;
  void sum(std::span<double> /*losses*/) override {}

 private:
  TrainState& state_;
};

/// Forwards every call to another exchange. The classes below override some of the calls.
class StepDecorator : public StepExchange {
 public:
  explicit StepDecorator(std::unique_ptr<StepExchange> inner) : inner_(std::move(inner)) {}

  MicroBatchResult pass(const Run& run, const PassInput& input) override {
    return inner_->pass(run, input);
  }
  void losses(Stream& stream, const PassInput& input, MicroBatchResult& own) override {
    inner_->losses(stream, input, own);
  }
  void nonfinite(std::vector<std::int64_t>& samples) override { inner_->nonfinite(samples); }
  void reduce(Run& run) override { inner_->reduce(run); }
  double grad_norm(Run& run) override { return inner_->grad_norm(run); }
  void prepare(StepProgress& progress, bool waits) override { inner_->prepare(progress, waits); }
  void update(Run& run, StepProgress& progress) override { inner_->update(run, progress); }
  void sum(std::span<double> losses) override { inner_->sum(losses); }

 protected:
  StepExchange& inner() { return *inner_; }

 private:
  std::unique_ptr<StepExchange> inner_;
};

/// Ranks that each have the losses of different tokens.
class SharedLosses : public StepDecorator {
 public:
  SharedLosses(std::unique_ptr<StepExchange> inner, comm::Group& group)
      : StepDecorator(std::move(inner)), group_(group) {}

  void nonfinite(std::vector<std::int64_t>& samples) override;
  void sum(std::span<double> losses) override;

 protected:
  comm::Group& group_;
};

/// Ranks that each have some stages of a model. All of them read the same data; the last stage has
/// the losses.
class PipelineStep : public SharedLosses {
 public:
  PipelineStep(std::unique_ptr<StepExchange> inner, TrainState& state,
               parallel::PipelinePart& pipeline)
      : SharedLosses(std::move(inner), pipeline.group()), state_(state), pipeline_(pipeline) {}

  MicroBatchResult pass(const Run& run, const PassInput& input) override;
  void losses(Stream& stream, const PassInput& input, MicroBatchResult& own) override;
  double grad_norm(Run& run) override;

 private:
  TrainState& state_;
  parallel::PipelinePart& pipeline_;
};

/// Ranks that share sequences: each has the losses of its own tokens.
class ContextStep : public SharedLosses {
 public:
  using SharedLosses::SharedLosses;
  void losses(Stream& stream, const PassInput& input, MicroBatchResult& own) override;
};

/// Ranks that take different micro-batches.
class DataParallelStep : public SharedLosses {
 public:
  using SharedLosses::SharedLosses;
  void losses(Stream& stream, const PassInput& input, MicroBatchResult& own) override;
  void prepare(StepProgress& progress, bool waits) override;
};

/// Ranks whose optimizer sends signs: some steps do not sum gradients.
class OneBitStep : public StepDecorator {
 public:
  OneBitStep(std::unique_ptr<StepExchange> inner, TrainState& state,
             parallel::OneBitOptimizer& optimizer, parallel::DataParallelStore& store)
      : StepDecorator(std::move(inner)), state_(state), optimizer_(optimizer), store_(store) {}

  MicroBatchResult pass(const Run& run, const PassInput& input) override;
  void reduce(Run& run) override;
  double grad_norm(Run& run) override;
  void update(Run& run, StepProgress& progress) override;

 private:
  TrainState& state_;
  parallel::OneBitOptimizer& optimizer_;
  parallel::DataParallelStore& store_;
  bool sums_gradients_ = true;  // in the step that is under way
};

/// Ranks that keep a copy of the next rank's shard.
class ReplicatedStep : public StepDecorator {
 public:
  ReplicatedStep(std::unique_ptr<StepExchange> inner, parallel::Replica& replica,
                 comm::Group& shard)
      : StepDecorator(std::move(inner)), replica_(replica), shard_(shard) {}

  void prepare(StepProgress& progress, bool waits) override;
  void update(Run& run, StepProgress& progress) override;

 private:
  parallel::Replica& replica_;
  comm::Group& shard_;
};

}  // namespace atl::train
