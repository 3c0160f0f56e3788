#pragma once

// Moves training state from the memory of the old ranks to the ranks that go on, without a
// checkpoint.

#include <optional>
#include <vector>

#include "atoll/parallel/layout/held_state.h"
#include "atoll/train/config/config.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/regroup/regrouping.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// Copies everything that this rank has and others may need: its own part of the state, and its
/// copy of the next rank's part (launch.replicate). Call it before `state` is freed for a new one.
parallel::HeldCopy copy_of_held(TrainState& state);

/// Fills `state`, the new state of this rank among `ranks`, with what the ranks have; `hellos` say
/// which rank has what. `held` is what this rank has; nothing: the rank is new. Every rank must
/// call it. Throws Error(kPeer) on all ranks when a part is lost.
void redistribute(const TrainConfig& config, const Ranks& ranks, const std::vector<Hello>& hellos,
                  const std::optional<parallel::HeldCopy>& held, TrainState& state);

}  // namespace atl::train
