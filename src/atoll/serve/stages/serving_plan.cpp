#include "atoll/serve/stages/serving_plan.h"

#include <algorithm>

#include "atoll/serve/stages/layer_split.h"
#include "atoll/serve/stages/pipeline_executor.h"

namespace atl::serve::stages {

namespace {

// What takes the time of one stage's steps.
struct Work {
  double read_bytes = 0;   // of weights: all but the table of tokens
  double cache_bytes = 0;  // of one row, of a context that is half full
  double flops_of_a_row = 0;
};

Work work_of(const nn::ModelConfig& config, const ServingNeeds& needs, const LayerBytes& bytes,
             const StepLayers& layers) {
  double weights = stage_bytes(bytes, layers) / sizeof(float);
  if (layers.first == 0) weights -= bytes.embedding / sizeof(float);
  const double positions = static_cast<double>(needs.max_positions) / 2;
  const double block = static_cast<double>(StepModel::block_bytes(config, layers));
  return {.read_bytes = weights * needs.bytes_per_weight,
          .cache_bytes = block / StepModel::kBlockSize * positions,
          .flops_of_a_row = 2 * weights};
}

double seconds_of(const Work& work, const ServingNeeds& needs, std::int64_t rows) {
  const auto count = static_cast<double>(rows);
  return std::max((work.read_bytes + count * work.cache_bytes) / needs.memory_bytes_per_s,
                  count * work.flops_of_a_row / needs.flops_per_s);
}

// One way over all links: hidden states between stages, tokens to and from the machine that serves.
double seconds_of_links(const nn::ModelConfig& config, const ServingNeeds& needs,
                        std::int64_t rows) {
  if (needs.stages.size() == 1) return 0;
  const auto links = static_cast<double>(needs.stages.size() + 1);
  const auto row_bytes = static_cast<double>(config.hidden_size) * sizeof(float);
  return links * needs.round_trip_s / 2 +
         (links - 2) * static_cast<double>(rows) * row_bytes / needs.link_bytes_per_s;
}

}  // namespace

ServingPlan plan_serving(const nn::ModelConfig& config, const ServingNeeds& needs) {
  const LayerBytes bytes = layer_bytes(config);
  ServingPlan plan;
  std::vector<Work> works;
  std::vector<double> alone;
  for (const StepLayers& layers : needs.stages) {
    works.push_back(work_of(config, needs, bytes, layers));
    alone.push_back(seconds_of(works.back(), needs, 1));
    const auto blocks = static_cast<double>(StepModel::blocks_for(needs.max_positions));
    plan.stages.push_back(
        {.layers = layers,
         .weight_bytes = stage_bytes(bytes, layers) / sizeof(float) * needs.bytes_per_weight,
         .cache_bytes = blocks * static_cast<double>(needs.slots) *
                        static_cast<double>(StepModel::block_bytes(config, layers)),
         .seconds_one = alone.back()});
  }
  const double links_alone = seconds_of_links(config, needs, 1);
  plan.seconds_of_token_alone = links_alone;
  for (const double seconds : alone) plan.seconds_of_token_alone += seconds;
  plan.tokens_per_s_alone = 1 / plan.seconds_of_token_alone;

  plan.groups =
      needs.stages.size() == 1 ? 1 : std::min(needs.slots, groups_for(alone, links_alone));
  plan.rows_of_group = (needs.slots + plan.groups - 1) / plan.groups;
  double slowest = 0;
  double pass = seconds_of_links(config, needs, plan.rows_of_group);
  for (std::size_t i = 0; i < works.size(); ++i) {
    plan.stages[i].seconds_full = seconds_of(works[i], needs, plan.rows_of_group);
    slowest = std::max(slowest, plan.stages[i].seconds_full);
    pass += plan.stages[i].seconds_full;
  }
  // A group's next step begins when its last one is back, and when the others' are through.
  plan.seconds_of_token = std::max(pass, static_cast<double>(plan.groups) * slowest);
  plan.tokens_per_s = static_cast<double>(needs.slots) / plan.seconds_of_token;
  return plan;
}

}  // namespace atl::serve::stages
