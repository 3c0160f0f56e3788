#include "atoll/cli/models/shared_engine.h"

#include "atoll/base/error.h"
#include "atoll/cli/models/weights.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_room.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/train/progress/interrupt.h"

namespace atl::cli {

namespace {

void refuse_adapter(const serve::ModelLayout& layout, const model_dir::ModelPath& model) {
  if (layout.tensor == 1 || !model_dir::holds_adapter(model)) return;
  throw user_error(
      "parallel.tp = {}: {} is an adapter, and ranks that share products cannot merge it; merge it "
      "before with `atoll export --merge`, or share the model with parallel.pp",
      layout.tensor, model.string());
}

}  // namespace

SharedEngine::SharedEngine(comm::World& world, const train::TrainConfig& settings,
                           const model_dir::ModelPath& model, const nn::ModelConfig& config,
                           const EngineNeeds& needs)
    : ranks_(world, model_layout(settings.parallel, world.size())) {
  world.agree([&] { refuse_adapter(ranks_.layout(), model); });
  device_ = open_model_device(settings, world);
  world.agree([&] {
    model_dir::check_weights(model, config, *device_, least_bytes(needs.weights), world.size());
    model_dir::take_memory(model, config, [&] {
      engine_ = std::make_unique<serve::InferenceEngine>(*device_, config, needs.max_tokens,
                                                         needs.weights, &ranks_,
                                                         keep_of(model, needs.weights));
    });
    if (needs.weights == serve::Weights::kF32 || needs.weights == serve::Weights::kStored) {
      model_dir::load_parameters(model, engine_->model(), engine_->store(), device_->threads());
    } else {
      model_dir::load_whole_parameters(model, engine_->model(), engine_->store());
    }
  });
}

int SharedEngine::follow() {
  const train::InterruptGuard ignored;
  engine_->follow();
  return 0;
}

}  // namespace atl::cli
