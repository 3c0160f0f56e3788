#pragma once

// Steps that change no parameter, because they are not finite or have no loss.

#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// Reports that the step after run.position was not taken. Throws Error(kNumeric) naming its
/// samples when the step is not finite and the run does not skip such steps, or has skipped too
/// many in a row; Error(kUser) when no later batch has a loss either. Before it throws, it saves a
/// checkpoint of the steps so far. Every rank must call it.
void handle_skipped(TrainRun& run, const StepResult& result);

}  // namespace atl::train
