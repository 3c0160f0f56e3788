#pragma once

#include <string>

#include "atoll/train/state_copies.h"
#include "atoll/train/train_run.h"

namespace atl::train {

/// Saves the newest step of which the ranks that are left have copies of all parts of the model, as
/// a checkpoint of the run. `left` are those ranks; every one of them must call it. Returns what
/// was done, as a message says it. Throws Error(kPeer) where a part is missing.
std::string write_copies(TrainRun& run, const StateCopies& copies, comm::World& left);

}  // namespace atl::train
