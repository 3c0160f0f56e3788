#pragma once

// What of a model is trained whole beside its adapters: modules_to_save, and biases.

#include <vector>

#include "atoll/nn/lora_rules.h"
#include "atoll/nn/model.h"

namespace atl::nn {

/// Trains the modules that options.modules_to_save names, under PEFT's names. An embedding that the
/// head shares stays the head's, as with PEFT's ensure_weight_tying, and has both names. `params`:
/// all of the model's own. Throws Error(kUser) naming the module for one that is not there or that
/// this rank has a part of.
void train_saved_modules(const Model& model, const std::vector<Param*>& params,
                         const LoraOptions& options, const LoraRules& rules);

/// Whether a model that add_lora was called on trains an embedding whole that its head shares.
bool saves_tied_embedding(const Model& model);

/// Trains the biases that options.bias means, under PEFT's names. Throws Error(kUser) naming the
/// module where one parameter holds biases of which some are trained and some are not, and where
/// the model has no such bias.
void train_biases(const std::vector<Param*>& params, const LoraOptions& options,
                  const LoraRules& rules);

}  // namespace atl::nn
