#pragma once

// What serving a model will take and give, by arithmetic: memory of each machine, the time of a
// token, tokens a second.

#include <cstdint>
#include <vector>

#include "atoll/serve/batch/step_model.h"

namespace atl::serve::stages {

/// What a plan is made of. All machines are alike.
struct ServingNeeds {
  double bytes_per_weight = 4;
  std::int64_t slots = 8;          ///< answers at once
  std::int64_t max_positions = 0;  ///< of a prompt and its answer
  double memory_bytes_per_s = 0;   ///< that a machine reads
  double flops_per_s = 0;          ///< of its products
  std::vector<StepLayers> stages;  ///< one: the model is on the machine that serves
  double round_trip_s = 0;         ///< of each link between machines
  double link_bytes_per_s = 0;
};

/// What a machine has, and how long it takes for its part of a step.
struct StagePlan {
  StepLayers layers;
  double weight_bytes = 0;
  double cache_bytes = 0;   ///< keys and values of all slots, full
  double seconds_one = 0;   ///< of a step with one row
  double seconds_full = 0;  ///< of a step with a group's rows
};

/// A plan. A stage reads its weights, and the keys and values of its rows, once a step, here of
/// contexts that are half full; or it multiplies for longer than that takes. A step passes all
/// stages and links, and several groups of answers are under way at once, so that no stage waits.
struct ServingPlan {
  std::vector<StagePlan> stages;
  std::int64_t groups = 1;
  std::int64_t rows_of_group = 0;
  double seconds_of_token_alone = 0;  ///< with one answer
  double seconds_of_token = 0;        ///< of each, with all slots busy
  double tokens_per_s_alone = 0;
  double tokens_per_s = 0;  ///< of all slots together
};
ServingPlan plan_serving(const nn::ModelConfig& config, const ServingNeeds& needs);

}  // namespace atl::serve::stages
