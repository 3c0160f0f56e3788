#pragma once

// Which instructions a run multiplies bf16 with: one choice for all its ranks and starts.

#include <string>

#include "atoll/train/config.h"
#include "atoll/train/ranks.h"

namespace atl::train {

/// Makes one choice that of all ranks, and returns its name: rank `decider` takes what device.bf16
/// says, else what the steps before were made with (`before`; empty: there were none), else what a
/// measurement finds faster. A measurement may come out otherwise the next time, so a run keeps
/// `before`. The lead says what was chosen unless it is `known`. Every rank must call it. Returns
/// `known` where train.dtype is not bf16.
std::string agree_on_bf16(const TrainConfig& config, const Ranks& ranks, const std::string& before,
                          int decider, const std::string& known);

}  // namespace atl::train
