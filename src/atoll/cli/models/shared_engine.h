#pragma once

#include <memory>

#include "atoll/cli/models/shared_model.h"
#include "atoll/model_dir/model_path.h"
#include "atoll/serve/inference_engine.h"

namespace atl::cli {

/// What an engine is made for.
struct EngineNeeds {
  std::int64_t max_tokens = 0;  ///< the same on all ranks
  serve::Weights weights = serve::Weights::kF32;
};

/// An engine with the weights of a model directory, on ranks that share the model.
class SharedEngine {
 public:
  /// Every rank of the world must make it, with the settings that run_on_ranks gave. What goes
  /// wrong on several ranks is thrown on all, and told where world.reports(). `world` must outlive
  /// this.
  SharedEngine(comm::World& world, const train::TrainConfig& settings,
               const model_dir::ModelPath& model, const nn::ModelConfig& config,
               const EngineNeeds& needs);

  serve::InferenceEngine& engine() { return *engine_; }
  /// On the ranks that do not lead: does what the first one asks, until it is done, and signals
  /// meanwhile are its business. Returns the exit code.
  int follow();

 private:
  serve::ModelRanks ranks_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<serve::InferenceEngine> engine_;
};

}  // namespace atl::cli
