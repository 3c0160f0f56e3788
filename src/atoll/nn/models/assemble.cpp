#include "atoll/nn/models/assemble.h"

#include <string>
#include <utility>

#include "atoll/nn/recompute.h"

namespace atl::nn {

std::unique_ptr<Model> assemble(const ModelConfig& config, const BuildOptions& options,
                                std::vector<std::unique_ptr<Constant>> constants,
                                TensorSplit& split, TensorEnds ends,
                                std::vector<std::unique_ptr<Layer>> blocks,
                                std::unique_ptr<Layer> final_norm) {
  auto model = std::make_unique<Model>();
  model->config = config;
  model->options = options;
  model->constants = std::move(constants);
  const auto add = [&](std::string name, std::unique_ptr<Layer> stage) {
    model->stage_names.push_back(std::move(name));
    model->stages.push_back(std::move(stage));
  };
  add("embedding", std::move(ends.embedding));
  if (options.dropout > 0) add("dropout", make_dropout(options, 0));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::unique_ptr<Layer> block = std::move(blocks[i]);
    if (options.recompute == RecomputeMode::kFull)
      block = std::make_unique<Recompute>(std::move(block));
    add(fmt::format("block {}", i), std::move(block));
  }
  add("norm", std::move(final_norm));
  model->head = ends.plain_head;
  add("head", std::move(ends.head));
  split.hand_over(*model);
  return model;
}

}  // namespace atl::nn
