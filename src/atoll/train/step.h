#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "atoll/train/state.h"

namespace atl::train {

/// What one optimizer step is given beside the data.
struct StepOptions {
  std::int64_t step = 0;  ///< from 0; update number step + 1
  std::uint64_t seed = 0;
  std::int64_t num_micro_batches = 1;  ///< gradient accumulation
  double lr = 0;
  double clip = 0;  ///< the largest gradient norm; 0: no clipping
};

/// What came of it.
struct StepResult {
  double loss = 0;       ///< mean over the global batch's targets, in nats
  double grad_norm = 0;  ///< before clipping
  std::int64_t targets = 0;
  /// Global indices of the samples whose loss is not finite; when the losses are finite and only
  /// the gradient is not, all samples of the step. Empty: the step was taken.
  std::vector<std::int64_t> nonfinite_samples;

  bool taken() const { return nonfinite_samples.empty(); }
};

/// One optimizer step: forward and backward of every micro-batch, clip, update. A step whose loss
/// or gradient is not finite changes no parameter and no optimizer state. `next` gives the
/// micro-batches in order; where some positions have no target, Batch::step_targets says how many
/// in the step do.
StepResult take_step(TrainState& state, Stream& stream, const StepOptions& options,
                     const std::function<Batch()>& next);

}  // namespace atl::train
