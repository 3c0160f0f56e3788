#pragma once

#include <span>
#include <vector>

#include "atoll/parallel/pipeline.h"

namespace atl::parallel {

/// How long each F, B and W of a stage takes, in any unit; transfers take no time.
struct PassCosts {
  double forward = 1;
  double input = 1;
  double weight = 1;
};

/// What the schedules of a pipeline's ranks need together.
struct PipelineUse {
  /// For each stage, the micro-batches whose activations it holds at once, at most.
  std::vector<std::size_t> slots;
  double duration = 0;            ///< until the last rank is done
  std::vector<double> idle_time;  ///< of each rank, within `duration`
};

/// Runs the lists of all ranks against each other without any data. Throws Error(kInternal), naming
/// rank and action, when they do not fit together: a stage that is not the rank's, an F, B or W
/// that is missing, repeated or before what it needs, two micro-batches in one slot, a transfer
/// without a counterpart, or ranks that wait for each other.
///
/// A send ends at once; a receive waits for its send. Between two ranks, outputs arrive in the
/// order of their sends, and so do gradients.
PipelineUse simulate_pipeline(const Pipeline& pipeline,
                              std::span<const std::vector<Action>> actions_of_ranks,
                              const PassCosts& costs = {});

}  // namespace atl::parallel
