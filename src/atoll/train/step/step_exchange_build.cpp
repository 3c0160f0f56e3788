// Which exchanges a layout's step has. All questions about the layout of a step are asked here.

#include "atoll/train/step/step_exchanges.h"

namespace atl::train {

// Inner exchanges come first: a pipeline's losses are whole before ranks that share sequences sum
// theirs, and both before data-parallel ranks put theirs in order. All ranks wait for each other
// after each has its copies of gradients.
std::unique_ptr<StepExchange> make_step_exchange(TrainState& state) {
  std::unique_ptr<StepExchange> step = std::make_unique<OwnStep>(state);
  if (parallel::Replica* replica = state.replica()) {
    step = std::make_unique<ReplicatedStep>(std::move(step), *replica, *state.shard_group());
  }
  if (parallel::PipelinePart* pipeline = state.pipeline()) {
    step = std::make_unique<PipelineStep>(std::move(step), state, *pipeline);
  }
  if (comm::Group* context = state.context_group()) {
    step = std::make_unique<ContextStep>(std::move(step), *context);
  }
  if (comm::Group* data = state.group(); data != nullptr && data->size() > 1) {
    step = std::make_unique<DataParallelStep>(std::move(step), *data);
  }
  if (parallel::OneBitOptimizer* onebit = state.onebit()) {
    auto& store = dynamic_cast<parallel::DataParallelStore&>(state.store());
    step = std::make_unique<OneBitStep>(std::move(step), state, *onebit, store);
  }
  return step;
}

}  // namespace atl::train
