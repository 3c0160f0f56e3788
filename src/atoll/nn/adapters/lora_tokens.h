#pragma once

// Rows of the embedding that are trained beside adapters: what PEFT calls trainable_token_indices.

#include <cstdint>
#include <vector>

#include "atoll/nn/lora_rules.h"
#include "atoll/nn/model.h"

namespace atl::nn {

/// Trains the rows of the tokens that options.tokens names, in the embedding and in a head that
/// shares it, under PEFT's name. `params`: all of the model's own. Throws Error(kUser) naming what
/// of the other options does not go with it, and tokens that the model has not.
void train_tokens(Model& model, const std::vector<Param*>& params, const LoraOptions& options,
                  const LoraRules& rules);

/// Whether a parameter is rows that train_tokens added.
bool is_trained_rows(const Param& param);
/// The tokens whose rows these are; empty: the model has none.
std::vector<std::int64_t> tokens_trained_in(const Model& model);

}  // namespace atl::nn
