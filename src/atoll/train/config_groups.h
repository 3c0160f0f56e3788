#pragma once

#include "atoll/train/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers every key of `config` with its rules.
void add_all(SettingRegistry& settings, TrainConfig& config);

}  // namespace atl::train
