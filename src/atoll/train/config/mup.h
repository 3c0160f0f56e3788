#pragma once

#include "atoll/train/config/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers the keys of model.* that say how initial values and learning rates follow a model's
/// width; the group "model" is the present one.
void add_parametrisation(SettingRegistry& settings, ModelSettings& model);

/// Throws Error(kUser) where these are refused: for a config that no recipe gave. `settings` are
/// those of `config`.
void validate_parametrisation(const TrainConfig& config, const Settings& settings);

}  // namespace atl::train
