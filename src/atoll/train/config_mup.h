#pragma once

#include <string_view>

#include "atoll/train/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers the keys of model.* that say how initial values and learning rates follow a model's
/// width; the group "model" is the present one.
void add_parametrisation(SettingRegistry& settings, ModelSettings& model);

/// Whether a key is one of these: they go with model.from and model.config too.
bool is_of_parametrisation(std::string_view key);

/// Throws Error(kUser) naming the key where base sizes are missing, are given without muP, or
/// something else of the run does not go with it. `settings` are those of `config`.
void validate_parametrisation(const TrainConfig& config, const Settings& settings);

}  // namespace atl::train
