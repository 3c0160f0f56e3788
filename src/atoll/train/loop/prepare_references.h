#pragma once

#include <string>

#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// Gives the run's model what it compares its answers with (train.objective): the log-probabilities
/// of all answers by the model that the run begins with. They are computed once, by all ranks, and
/// kept beside the run's tokens. `trained_hash`: of those that a checkpoint was trained with;
/// empty: the run is new. The parameters have any values after it. Throws Error(kUser) when the
/// references of the checkpoint are gone and others come of model.from now. Does nothing for a run
/// without preferences. Every rank must call it, with the same hash.
void prepare_references(TrainRun& run, const std::string& trained_hash);

/// The same for a run that is under way, when its ranks have changed and its batches are others:
/// the file is there.
void reopen_references(TrainRun& run);

}  // namespace atl::train
