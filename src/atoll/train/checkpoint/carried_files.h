#pragma once

// The files beside the weights that make a checkpoint a model directory.

#include "atoll/model_dir/model_path.h"
#include "atoll/nn/model.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// The files that the checkpoints of a run carry: the tokenizer of its tokens, the chat template of
/// the settings, and the stop tokens of a chat model. `base` is the directory of the model that the
/// run starts from; empty: a new model. If `warns`, logs warnings about what may surprise users.
CarriedFiles carried_files(const TrainConfig& config, const Tokenizer& tokenizer,
                           const nn::ModelConfig& model, const model_dir::ModelPath& base,
                           bool warns);

}  // namespace atl::train
