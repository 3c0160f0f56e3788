#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/nn/lora_rules.h"
#include "atoll/nn/model.h"

namespace atl::nn {

/// Freezes every parameter of `model` but those of options.modules_to_save, and adds adapters to
/// the Linears that the targets match, and to the experts that target_parameters names: A starts
/// random, B zero, so that nothing changes at first. Rows of options.tokens are trained by
/// themselves; load_parameters() gives them those of the table.
/// Call it before the model's parameters get memory. Throws Error(kUser) naming the target that
/// matches nothing, and what there is, or what of the options is read and merged but not trained.
void add_lora(Model& model, const LoraOptions& options);

/// Whether a parameter is one that add_lora added: a factor, lengths, or rows of tokens.
bool is_lora_factor(const Param& param);

/// Of DoRA: the weight whose rows' lengths this tensor of a parameter that add_lora added has, as
/// files of the base model call it; empty: it has none.
std::string weight_of_lengths(const FileTensor& file);

/// The modules of `model` that LoRA can adapt, by their last name, each once: "q_proj", "c_attn".
std::vector<std::string> lora_modules(Model& model);

}  // namespace atl::nn
