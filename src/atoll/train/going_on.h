#pragma once

// What a run that goes on from a checkpoint must find as it was.

#include <filesystem>
#include <string>

#include "atoll/train/checkpointing.h"
#include "atoll/train/config.h"

namespace atl::train {

/// Throws Error(kUser) where the corpus, or a setting on which the steps taken so far depend, is
/// not what `position` says that it was. Other settings may change, which is told if `tells`.
void check_same_run(const TrainConfig& config, const Settings& settings,
                    const std::string& corpus_hash, const Position& position, bool tells);

/// Throws Error(kUser) where the frozen weights, which came from `base` and have this hash, are not
/// those that the adapter in `checkpoint` was trained beside (their hash; empty: there is no
/// adapter).
void check_same_base(const std::string& hash, const std::filesystem::path& base,
                     const std::filesystem::path& checkpoint, const std::string& trained_beside);

}  // namespace atl::train
