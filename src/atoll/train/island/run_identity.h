#pragma once

#include <string>

#include "atoll/island/protocol/identity.h"
#include "atoll/train/config/config.h"
#include "atoll/train/corpus/corpus.h"

namespace atl::train {

/// What islands must have in common: all that decides what a step does, but for how an island
/// computes it, and where it has a model from: that is seen in what the model is. `base_hash`: of
/// the weights that no island trains (Position::base_hash), which islands do not exchange.
island::RunIdentity run_identity(const TrainConfig& config, const Settings& settings,
                                 const nn::ModelConfig& model, const PreparedCorpus& corpus,
                                 const std::string& base_hash);

}  // namespace atl::train
