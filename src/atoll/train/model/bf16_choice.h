#pragma once

// Which instructions a run multiplies bf16 with: one choice for all its ranks and starts.

#include <string>

#include "atoll/train/config/config.h"
#include "atoll/train/ranks/ranks.h"

namespace atl::train {

/// Rank `decider` chooses for all ranks; returns the name of the choice. The choice is
/// device.bf16 if that is set, else the arithmetic of the steps before (`before`; empty: there were
/// none), else the faster one of a measurement. Two measurements may differ, so a run keeps
/// `before`. The lead logs the choice unless it is `known`. Every rank must call it. Returns
/// `known` where train.dtype is not bf16.
std::string agree_on_bf16(const TrainConfig& config, const Ranks& ranks, const std::string& before,
                          int decider, const std::string& known);

}  // namespace atl::train
