#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "atoll/metrics/timeline.h"
#include "atoll/parallel/layout/micro_batches.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// The result of one step. All ranks have the same result, except for compute_seconds.
struct StepResult {
  double loss = 0;       ///< mean over the global batch's targets, in nats
  double grad_norm = 0;  ///< before clipping
  std::int64_t targets = 0;
  /// Global indices of the samples whose loss is not finite; when the losses are finite and only
  /// the gradient is not, all samples of the step. Empty: the step was taken.
  std::vector<std::int64_t> nonfinite_samples;
  /// False: no position of the global batch has a target, so there is no loss and no gradient.
  bool has_targets = true;
  /// Of a step on pairs: sums over all of them.
  std::optional<nn::PreferenceSums> preferences = {};
  double compute_seconds = 0;  ///< seconds for each micro-batch of this rank, without waiting

  /// Whether parameters were updated.
  bool taken() const { return nonfinite_samples.empty() && has_targets; }
};

/// How far a step has progressed. When a rank is lost during a step, the remaining ranks use this
/// to decide whether they finish the step or drop it.
struct StepProgress {
  enum class Phase {
    kBegun,      ///< nothing has changed
    kPrepared,   ///< this rank has all that its update needs
    kCommitted,  ///< all ranks were prepared, and this rank has made its update
  };
  Phase phase = Phase::kBegun;
  optim::StepArgs args;  ///< of the update; `args` and `result` are valid from kPrepared on
  StepResult result;
};

/// The options of one optimizer step, other than its data.
struct StepOptions {
  std::int64_t step = 0;  ///< from 0
  std::uint64_t seed = 0;
  std::int64_t num_micro_batches = 1;  ///< gradient accumulation, over all ranks
  double lr = 0;
  double clip = 0;  ///< the largest gradient norm; 0: no clipping
  /// Which data-parallel rank takes which of the micro-batches; null: this rank takes all.
  const parallel::MicroBatchPlan* plan = nullptr;
  /// See Run::row_stable.
  bool row_stable = false;
  /// Where to record progress; then no rank updates before all ranks are prepared.
  StepProgress* progress = nullptr;
  /// Where to record what takes time; null: nowhere.
  metrics::Timeline* timeline = nullptr;
  /// Where ops record how long they took; null: nowhere.
  ops::OpProfile* profile = nullptr;
};

/// One optimizer step: forward and backward of every micro-batch, clip, update. A step whose loss
/// or gradient is not finite, or which has no target, changes no parameter and no optimizer state,
/// on any rank. `next` gives this rank's micro-batches in order; where some positions have no
/// target, Batch::step_targets counts the targets of the step. Every rank that the state is
/// connected to must call it.
StepResult take_step(TrainState& state, Stream& stream, const StepOptions& options,
                     const std::function<Batch()>& next);

/// Makes the update of a step that is kPrepared and was broken off, where another rank has made
/// its update.
void finish_step(TrainState& state, Stream& stream, std::uint64_t seed, StepProgress& progress);

}  // namespace atl::train
