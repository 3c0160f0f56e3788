#pragma once

#include <span>

#include "atoll/parallel/compression.h"
#include "atoll/train/config.h"

namespace atl::train {

/// Registers dp.compress and what belongs to it; the group "dp" is the present one.
void add_compress(Settings& settings, DataParallelSettings& dp);

/// What may compress: each value of dp.compress but none, and the one of dp.compress_weights.
enum class CompressMode { kInt8, kInt4, kPowerSgd, kOneBitAdam, kZeroOneAdam, kWeights };
inline constexpr int kNumCompressModes = 6;

/// A line of the table of what goes together: something that a run may have, and for each mode why
/// it does not go together with that; null: it does.
struct CompressRule {
  const char* setting;  ///< which settings say it by
  const char* value;    ///< as a recipe would give it, for texts and tests
  bool (*is_set)(const TrainConfig& config);
  const char* reasons[kNumCompressModes];
};
std::span<const CompressRule> compress_rules();

/// Throws Error(kUser) naming both settings where compression does not go together with another
/// setting, and the reason.
void validate_compress(const TrainConfig& config, const Settings& settings);

/// What dp.compress and its companions mean for so many data-parallel ranks. Throws Error(kUser)
/// where there is only one.
parallel::CompressionOptions compression_options(const TrainConfig& config, int num_ranks);

/// Whether ranks hold state that others cannot stand in for.
bool is_compressed(const TrainConfig& config);

}  // namespace atl::train
