#pragma once

#include "atoll/train/config/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers offload.*.
void add_offload(SettingRegistry& settings, OffloadSettings& offload);

}  // namespace atl::train
