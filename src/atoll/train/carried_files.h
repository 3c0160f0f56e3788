#pragma once

// The files beside the weights that make a checkpoint a model directory.

#include <filesystem>

#include "atoll/nn/model.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/config.h"

namespace atl::train {

/// What the checkpoints of a run carry: the tokenizer of its tokens, the chat template that it is
/// given, and where a chat model stops. `base` is the directory of the model it starts from; empty:
/// a new one. Warns, if `warns`, of what a user of the checkpoints would not expect.
CarriedFiles carried_files(const TrainConfig& config, const Tokenizer& tokenizer,
                           const nn::ModelConfig& model, const std::filesystem::path& base,
                           bool warns);

}  // namespace atl::train
