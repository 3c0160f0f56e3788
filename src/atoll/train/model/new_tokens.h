#pragma once

// data.special_tokens of a pretrained model: the rows that it gets for them.

#include <cstdint>

#include "atoll/model_dir/model_path.h"
#include "atoll/nn/lora_rules.h"
#include "atoll/nn/model.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// The model of a directory, with rows for the tokens of data.special_tokens that it has none for;
/// `vocab_size`: of the tokenizer. Throws Error(kUser) where the directory is an adapter that would
/// need more rows.
nn::ModelConfig with_new_tokens(const TrainConfig& config, std::int64_t vocab_size,
                                const model_dir::ModelPath& directory);

/// Throws Error(kUser) where such rows would be in a table that an adapter of `model` leaves as it
/// is: the adapter would not hold them.
void check_trained_new_tokens(const TrainConfig& config, const nn::ModelConfig& model,
                              const nn::LoraOptions& lora);

/// Throws Error(kUser) where such rows would be in a table that stays in the bits of its file.
void refuse_packed_new_tokens(const model_dir::ModelPath& directory, nn::Model& model);

}  // namespace atl::train
