#pragma once

#include "atoll/train/config/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers model.* keys of families with experts; the group "model" is the present one.
void add_expert_shape(SettingRegistry& settings, ModelSettings& model);
/// Registers moe.*.
void add_experts(SettingRegistry& settings, ExpertSettings& experts);

/// The experts of a new model of these settings; none where its family has none.
nn::ExpertShape expert_shape(const ModelSettings& model, std::int64_t intermediate_size);

/// What a run of these settings does with the experts of `model`. Throws Error(kUser) naming the
/// setting when the model has none.
nn::ExpertOptions expert_options(const ExpertSettings& experts, const nn::ModelConfig& model);

}  // namespace atl::train
