#pragma once

// Moves training state from the memory of the old ranks to the ranks that go on, without a
// checkpoint.

#include <optional>
#include <vector>

#include "atoll/parallel/held_state.h"
#include "atoll/train/config.h"
#include "atoll/train/ranks.h"
#include "atoll/train/regrouping.h"
#include "atoll/train/state.h"

namespace atl::train {

/// A copy of all that this rank holds and others may need: its own part of the state, and its copy
/// of the next rank's (launch.replicate). For when `state` makes room for another.
parallel::HeldCopy copy_of_held(TrainState& state);

/// Fills `state`, which is this rank's among `ranks`, from what they have said (`hellos`) that they
/// hold. `held` is what this rank holds; nothing: it is new. Every rank must call it. Throws
/// Error(kPeer) on all ranks when a part is lost.
void redistribute(const TrainConfig& config, const Ranks& ranks, const std::vector<Hello>& hellos,
                  const std::optional<parallel::HeldCopy>& held, TrainState& state);

}  // namespace atl::train
