#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/parallel/schedule/pipeline.h"

namespace atl::parallel {

/// When a transfer of a rank's list moves. It begins before the action of tick `begin` and has
/// ended before that of tick `end`; the length of the list: when the list is done. A send begins at
/// its own action, a receive ends at its own.
struct Transfer {
  std::int64_t tick = 0;  ///< of its action
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const Transfer&) const = default;
};

/// What one rank of a pipeline does, with everything that a Runner needs to know of the others.
struct RankSchedule {
  /// Stages are numbered as this rank's model has them: from 0, in their order.
  std::vector<Action> actions;
  /// In the order in which they begin. Receives from a rank begin in the order of its sends.
  std::vector<Transfer> transfers;
};

/// The list of `rank` among the lists of all. A pure function, so every rank knows what the others
/// do without a word.
///
/// A receive begins one chunk's pass ahead of its action, beside which it moves. A send has ended
/// after the next pass of its own rank, or later, once its receive has begun in the simulated order
/// of all actions. So everything that an action waits for comes before it in that order, and ranks
/// cannot wait for each other in a circle, however transfers are carried out.
RankSchedule rank_schedule(const Pipeline& pipeline,
                           std::span<const std::vector<Action>> actions_of_ranks, int rank);

/// One micro-batch forward through ranks that have one chunk each: evaluation and generation.
RankSchedule forward_schedule(const Pipeline& pipeline, int rank);

/// What one rank of its own does: a list without transfers.
RankSchedule alone(std::vector<Action> actions);

}  // namespace atl::parallel
