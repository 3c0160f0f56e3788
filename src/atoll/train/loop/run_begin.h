#pragma once

// How a run begins: data, model, and the newest checkpoint.

#include <filesystem>
#include <string>

#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// Prepares the data: the lead prepares it and the other ranks read the result. Also takes the lock
/// of the run's directory. Every rank must call it, and also all functions below.
void prepare_data(TrainRun& run);
/// Opens batches and model for the present ranks; the parameters have no values after it.
void open_state(TrainRun& run);
/// Reads the newest complete checkpoint, or initialises a new model. Returns the checkpoint's
/// directory; empty: the model is new.
std::filesystem::path begin_or_resume(TrainRun& run);
/// Records in run.position what a checkpoint needs so that the run can go on from it.
void describe_position(TrainRun& run);
/// Makes all ranks use the same bf16 arithmetic; see train::agree_on_bf16.
void agree_on_bf16(TrainRun& run, const std::string& before, int decider);
/// Measures, for the present ranks, the peak rates by which step lines divide.
void measure_rates(TrainRun& run);

}  // namespace atl::train
