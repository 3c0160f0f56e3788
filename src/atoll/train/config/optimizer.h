#pragma once

#include "atoll/optim/optimizer.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// What the optimizer of a run with these settings is made with.
optim::OptimizerOptions optimizer_options(const OptimSettings& settings);

}  // namespace atl::train
