#pragma once

#include "atoll/parallel/compress/compression.h"
#include "atoll/train/config/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers dp.compress and what belongs to it; the group "dp" is the present one.
void add_compress(SettingRegistry& settings, DataParallelSettings& dp);

/// What dp.compress and its companions mean for so many data-parallel ranks. Throws Error(kUser)
/// where there is only one.
parallel::CompressionOptions compression_options(const TrainConfig& config, int num_ranks);

/// Whether ranks hold state that others cannot stand in for.
bool is_compressed(const TrainConfig& config);

}  // namespace atl::train
