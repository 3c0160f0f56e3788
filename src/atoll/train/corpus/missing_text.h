#pragma once

#include "atoll/train/config/config.h"

namespace atl::train {

/// Throws Error(kUser) where a file or directory of data.text is not there: which, where it is
/// named, with the recipe's own comment of that line, which may say where the text comes from.
void require_texts(const TrainConfig& config, const Settings& settings);

}  // namespace atl::train
