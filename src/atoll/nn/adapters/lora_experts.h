#pragma once

// Adapters of stacked experts: what PEFT calls target_parameters.

#include "atoll/nn/lora_rules.h"
#include "atoll/nn/model.h"

namespace atl::nn {

/// Adds adapters to the products of experts that options.target_parameters names, each block's
/// gate and up as "<...>.mlp.experts.gate_up_proj" and its down as "<...>.mlp.experts.down_proj".
/// Throws Error(kUser) naming the parameter that is not there, what of the other options does not
/// go with it, and where it is not computed: on GPUs, and on ranks that share experts.
void adapt_experts(Model& model, const LoraOptions& options, const LoraRules& rules);

}  // namespace atl::nn
