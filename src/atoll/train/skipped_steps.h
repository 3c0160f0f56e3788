#pragma once

// Steps that change no parameter, because they are not finite or have no loss.

#include "atoll/train/train_run.h"

namespace atl::train {

/// Reports the step after run.position, which was not taken. Throws Error(kNumeric) naming its
/// samples when it is not finite and the run does not skip such steps, or has met too many;
/// Error(kUser) when no batch that follows has a loss either. A checkpoint of the steps before is
/// saved first. Every rank must call it.
void handle_skipped(TrainRun& run, const StepResult& result);

}  // namespace atl::train
