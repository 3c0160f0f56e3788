#pragma once

#include <memory>

#include "atoll/nn/lora.h"
#include "atoll/nn/model.h"

namespace atl::nn {

/// build_model and add_lora: also where ranks share each product. Throws what they throw.
std::unique_ptr<Model> build_adapted_model(const ModelConfig& config, const BuildOptions& options,
                                           const LoraOptions& lora);

}  // namespace atl::nn
