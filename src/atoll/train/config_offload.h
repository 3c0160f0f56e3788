#pragma once

#include "atoll/train/config.h"
#include "atoll/train/state.h"

namespace atl::train {

class SettingRegistry;

/// Registers offload.*.
void add_offload(SettingRegistry& settings, OffloadSettings& offload);

/// What offload.* means for a rank of so many. Throws Error(kUser) where ranks and settings do not
/// fit.
OffloadChoice offload_options(const TrainConfig& config, int num_ranks);

}  // namespace atl::train
