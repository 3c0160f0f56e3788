#pragma once

// Forward and backward of the micro-batches of a step on one rank.

#include <cstdint>
#include <functional>
#include <vector>

#include "atoll/metrics/timeline.h"
#include "atoll/parallel/layout/micro_batches.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// The result of some micro-batches of a step on this rank.
struct MicroBatchResult {
  /// Of each micro-batch, in the order of the passes, `numbers_each` numbers: its sum of losses, in
  /// nats; of pairs, all of nn::PreferenceSums.
  std::vector<double> losses;
  std::size_t numbers_each = 1;
  std::vector<std::int64_t> nonfinite_samples;
  /// Targets of the whole step; 0: no position has a target. -1: this rank has no micro-batches
  /// and does not know the number yet.
  std::int64_t targets = -1;
  std::int64_t first_sample = -1;
  double seconds = 0;  ///< time in passes, without waiting for other ranks

  /// Losses that are on their way to the host, (micro-batches, B, T), until read_losses().
  Tensor pending_losses;
  std::vector<std::int64_t> first_samples;  ///< of each micro-batch in `pending_losses`
};

/// The numbers of MicroBatchResult::losses for a micro-batch of `shape`.
std::size_t numbers_of_losses(const StateOptions& shape);

/// Which micro-batches of a step a rank takes, and where they come from.
struct PassInput {
  const parallel::MicroBatchPlan& plan;
  int rank = 0;                        ///< data-parallel rank in `plan`
  const std::function<Batch()>& next;  ///< gives this rank's micro-batches in order
  metrics::Timeline* timeline = nullptr;
};

/// Runs the passes of one micro-batch after another. The store then has the sum of their gradients,
/// each divided by the number of targets of the whole step.
MicroBatchResult pass_one_by_one(TrainState& state, Run run, const PassInput& input);

/// Runs the passes of all micro-batches at once, through the ranks of a pipeline.
MicroBatchResult pass_through_pipeline(TrainState& state, Run run, const PassInput& input);

/// Waits for losses that are on their way to the host, and reads them; does nothing where none are.
void read_losses(Stream& stream, MicroBatchResult& micro);

}  // namespace atl::train
