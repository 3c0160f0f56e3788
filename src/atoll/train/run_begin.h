#pragma once

// How a run begins: data, model, and the newest checkpoint.

#include <filesystem>
#include <string>

#include "atoll/train/train_run.h"

namespace atl::train {

/// Prepares the data: the lead makes what the others then find. It takes the lock of the run's
/// directory. Every rank must call it, as all below.
void prepare_data(TrainRun& run);
/// Opens batches and model for the ranks that there are now; parameters have no values then.
void open_state(TrainRun& run);
/// Reads the newest checkpoint that is whole, or fills in a new model. Returns the checkpoint's
/// directory; empty: the model is new.
std::filesystem::path begin_or_resume(TrainRun& run);
/// Notes what the run goes on with, for its checkpoints.
void describe_position(TrainRun& run);
/// Agrees on how bf16 is multiplied; see train::agree_on_bf16.
void agree_on_bf16(TrainRun& run, const std::string& before, int decider);
/// Measures what step lines divide by, of the ranks that there are now.
void measure_rates(TrainRun& run);

}  // namespace atl::train
