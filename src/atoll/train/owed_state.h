#pragma once

// What compressed data parallel keeps in a checkpoint, and how it is read by other ranks and other
// ways to compress.

#include <cstdint>
#include <filesystem>
#include <string>

#include "atoll/base/thread_pool.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/safetensors/set.h"
#include "atoll/train/checkpoint_save.h"
#include "atoll/train/state.h"

namespace atl::train {

/// What a checkpoint says of the vectors of owed values that it holds.
struct OwedState {
  std::string codec;  ///< dp.compress of the ranks that owe; empty: nobody owes anything
  int ranks = 0;      ///< how many
  /// onebit_adam, zeroone_adam: how many updates the second moment has; -1: one of each step.
  std::int64_t second_updates = -1;
  std::int64_t steps = 1;  ///< zeroone_adam: of how many steps a mean momentum is owed

  bool operator==(const OwedState&) const = default;
};

/// What a checkpoint of `state` says.
OwedState owed_state(const TrainState& state);

/// Throws Error(kUser) unless `state` can go on from what `checkpoint` says is owed.
void check_owed(const OwedState& owed, const TrainState& state,
                const std::filesystem::path& checkpoint);

/// Fills the optimizer's state and the store's own from a checkpoint's `files`, as far as this rank
/// holds it, after so many steps. Needs no other rank.
void load_state_vectors(const ckpt::SafetensorsSet& files, const OwedState& owed, std::int64_t step,
                        TrainState& state, ThreadPool& threads);

/// The file of what compression keeps beside numbers for each element; of no name where there is
/// nothing. It holds a copy.
ExtraPart factors_part(const TrainState& state);
/// Reads it back, where the checkpoint has it of as many ranks' codec and as high a rank; else the
/// factors stay as they began.
void load_factors(const ckpt::CheckpointInfo& checkpoint, const OwedState& owed, TrainState& state);

}  // namespace atl::train
