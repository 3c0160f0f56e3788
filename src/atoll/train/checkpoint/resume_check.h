#pragma once

// What must not change when a run goes on from a checkpoint.

#include <filesystem>
#include <string>

#include "atoll/optim/schedule.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// Compares a run with the `position` of the checkpoint that it goes on from. Throws Error(kUser)
/// when the corpus has changed, or a setting that must not change (Setting::is_fixed). Other
/// settings may change; if `tells`, logs these changes, and warns of a jump of the learning rate.
void check_same_run(const TrainConfig& config, const Settings& settings,
                    const std::string& corpus_hash, const Position& position, bool tells);

/// How the learning rate of a run moves.
optim::Schedule schedule_of(const TrainConfig& config);

/// A warning that the learning rate jumps, because train.steps or the schedule was changed since
/// the steps so far were taken: the old rate, the new rate, and how to avoid the jump. Empty where
/// the rates differ by less than 5%, or where optim.lr itself was changed. `position` is that of a
/// run without islands.
std::string describe_rate_jump(const TrainConfig& config, const Position& position);

/// Throws Error(kUser) where the frozen weights, which were read from `base` and have hash `hash`,
/// are not the weights that the adapter in `checkpoint` was trained with (`trained_beside` is the
/// hash of these; empty: no adapter).
void check_same_base(const std::string& hash, const std::filesystem::path& base,
                     const std::filesystem::path& checkpoint, const std::string& trained_beside);

}  // namespace atl::train
