#pragma once

#include <memory>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/tensor_split.h"

namespace atl::nn {

/// Puts a model together: an embedding, blocks (each with recompute when asked for), final norm,
/// head.
std::unique_ptr<Model> assemble(const ModelConfig& config, const BuildOptions& options,
                                std::vector<std::unique_ptr<Constant>> constants,
                                TensorSplit& split, TensorEnds ends,
                                std::vector<std::unique_ptr<Layer>> blocks,
                                std::unique_ptr<Layer> final_norm);

}  // namespace atl::nn
