#pragma once

// The state that compressed data parallel stores in a checkpoint, and how other ranks and other
// compressions read this state.

#include <cstdint>
#include <filesystem>
#include <string>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/safetensors/set.h"
#include "atoll/train/checkpoint/save.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// What a checkpoint says about its residuals.
struct ResidualState {
  std::string codec;  ///< dp.compress of the ranks with residuals; empty: there are none
  int ranks = 0;      ///< the number of these ranks
  /// onebit_adam, zeroone_adam: the number of updates of the second moment; -1: one in each step.
  std::int64_t second_updates = -1;
  std::int64_t steps = 1;  ///< zeroone_adam: the number of steps in the mean momentum

  bool operator==(const ResidualState&) const = default;
};

/// The ResidualState that a checkpoint of `state` has.
ResidualState residual_state(const TrainState& state);

/// Throws Error(kUser) unless `state` can go on from the residuals of `checkpoint`.
void check_residual(const ResidualState& residual, const TrainState& state,
                    const std::filesystem::path& checkpoint);

/// Fills the optimizer's state and the store's own state from `files` of a checkpoint made after
/// `step` steps: the part that this rank has. Needs no other rank.
void load_state_vectors(const ckpt::SafetensorsSet& files, const ResidualState& residual,
                        std::int64_t step, TrainState& state, ThreadPool& threads);

/// A copy of the compression state that is not one number for each element (PowerSGD's factors), as
/// a file; its name is empty where there is no such state.
ExtraPart factors_part(const TrainState& state);
/// Reads the factors from the checkpoint, if it has them of the same codec and the same shapes;
/// otherwise the factors keep their initial values.
void load_factors(const ckpt::CheckpointInfo& checkpoint, const ResidualState& residual,
                  TrainState& state);

}  // namespace atl::train
