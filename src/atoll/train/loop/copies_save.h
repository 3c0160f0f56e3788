#pragma once

#include <string>

#include "atoll/train/checkpoint/state_copies.h"
#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// Saves a checkpoint of the run from copies of the newest step for which the remaining ranks have
/// copies of all parts of the model. `left` are the remaining ranks; all must call it. Returns a
/// text for a message about what was saved. Throws Error(kPeer) where a part is missing.
std::string write_copies(TrainRun& run, const StateCopies& copies, comm::World& left);

}  // namespace atl::train
