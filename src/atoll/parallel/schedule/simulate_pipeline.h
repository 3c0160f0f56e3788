#pragma once

#include <span>
#include <vector>

#include "atoll/parallel/schedule/pipeline.h"

namespace atl::parallel {

/// How long F, B and W of a stage take, in any unit; transfers take no time.
struct PassCosts {
  double forward = 1;
  double input = 1;
  double weight = 1;
};

/// What the schedules of a pipeline's ranks need together.
struct PipelineUse {
  /// For each stage, the micro-batches whose activations it holds at once, at most.
  std::vector<std::size_t> slots;
  /// For each rank, the most passes of micro-batches through one of its chunks that it holds at
  /// once, from F to W. Divided by the chunks of a rank: micro-batches.
  std::vector<std::size_t> in_flight;
  /// For each rank and each of its actions, its place in one order of all actions, that of their
  /// times: an action comes after all that it waits for.
  std::vector<std::vector<std::int64_t>> order;
  double duration = 0;            ///< until the last rank is done
  std::vector<double> idle_time;  ///< of each rank, within `duration`

  /// The share of all ranks' time in which they are idle.
  double bubble() const;
};

/// Runs the lists of all ranks against each other without any data. Throws Error(kInternal), naming
/// rank and action, when they do not fit together: a stage that is not the rank's, an F, B or W
/// that is missing, repeated or before what it needs, a transfer without a counterpart, or ranks
/// that wait for each other.
///
/// `costs`: one for all stages, or one for each. A send ends at once; a receive waits for its send.
/// Between two ranks, outputs arrive in the order of their sends, and so do gradients.
PipelineUse simulate_pipeline(const Pipeline& pipeline,
                              std::span<const std::vector<Action>> actions_of_ranks,
                              std::span<const PassCosts> costs);
PipelineUse simulate_pipeline(const Pipeline& pipeline,
                              std::span<const std::vector<Action>> actions_of_ranks,
                              const PassCosts& costs = {});

}  // namespace atl::parallel
