#pragma once

#include <span>
#include <vector>

#include "atoll/parallel/schedule/pipeline.h"
#include "atoll/plan/stage_seconds.h"

namespace atl::plan {

/// What a pipeline's ranks share of their hosts.
struct PipelineHosts {
  /// The host of each rank, from 0. Ranks of one host slow each other down.
  std::vector<int> host_of;
  /// Ranks of the host that do as each rank of the pipeline does: of other pipelines, and those
  /// that share its products.
  int copies = 1;
  /// See Figures::speedups.
  std::vector<double> speedups = {1};
};

/// How long the lists of a pipeline's ranks take.
struct PipelineTime {
  double seconds = 0;
  std::vector<double> busy;  ///< seconds in which each rank computes
  /// The share of all ranks' time in which they wait.
  double bubble() const;
};

/// Runs the lists of all ranks against each other on a clock. A pass takes the time of its stage,
/// less where few ranks of a host compute; a transfer from rank r to its neighbour takes
/// `transfer_seconds[r]` from its send on, whichever way it goes, and r is the lower of the two,
/// the last standing for the way between the last rank and the first. No data, and a pure function.
PipelineTime time_pipeline(const parallel::Pipeline& pipeline,
                           std::span<const std::vector<parallel::Action>> lists,
                           std::span<const StageSeconds> stages,
                           std::span<const double> transfer_seconds, const PipelineHosts& hosts);

}  // namespace atl::plan
