#pragma once

// The groups of settings, each registered with its rules.

#include "atoll/train/config/config.h"

namespace atl::train {

class SettingRegistry;

/// Why no shape may be given beside model.from or model.config.
inline constexpr const char* kShapeIsKnown = "its config.json says what the model is";

/// Registers every key of `config`.
void add_all(SettingRegistry& settings, TrainConfig& config);

/// Registers model.*.
void add_model(SettingRegistry& settings, TrainConfig& config);
/// Registers data.*.
void add_data(SettingRegistry& settings, TrainConfig& config);
/// Registers train.*.
void add_train(SettingRegistry& settings, TrainConfig& config);
/// Registers preference.*.
void add_preference(SettingRegistry& settings, TrainConfig& config);
/// Registers dp.* and parallel.*.
void add_ranks(SettingRegistry& settings, TrainConfig& config);
/// Registers comm.* and launch.*.
void add_links(SettingRegistry& settings, TrainConfig& config);
/// Registers optim.*.
void add_optim(SettingRegistry& settings, TrainConfig& config);
/// Registers lora.*.
void add_lora(SettingRegistry& settings, TrainConfig& config);
/// Registers rl.*.
void add_rl(SettingRegistry& settings, TrainConfig& config);
/// Registers island.*.
void add_islands(SettingRegistry& settings, TrainConfig& config);
/// Registers outer.*.
void add_outer(SettingRegistry& settings, TrainConfig& config);
/// Registers eval.*, checkpoint.* and log.*.
void add_reporting(SettingRegistry& settings, TrainConfig& config);
/// Registers alerts.* and metrics.*.
void add_watching(SettingRegistry& settings, TrainConfig& config);

}  // namespace atl::train
