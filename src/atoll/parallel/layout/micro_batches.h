#pragma once

#include <cstdint>
#include <vector>

namespace atl::parallel {

/// Which rank takes which micro-batches of a step: a step has rounds, and in each those ranks that
/// still have one to do take the next numbers in rank order. So the sum over rounds, and within a
/// round over ranks, is the sum in the order of micro-batches, whatever the number of ranks.
class MicroBatchPlan {
 public:
  /// `num_micro_batches` shared as evenly as may be, lower ranks first.
  MicroBatchPlan(std::int64_t num_micro_batches, int num_ranks);
  /// Rank r takes shares[r] of them.
  explicit MicroBatchPlan(std::vector<std::int64_t> shares);

  int num_ranks() const { return static_cast<int>(shares_.size()); }
  std::int64_t num_micro_batches() const;
  /// The most that a rank has.
  std::int64_t rounds() const;
  std::int64_t share(int rank) const { return shares_[static_cast<std::size_t>(rank)]; }
  /// The ranks with a micro-batch in a round, ascending; in round 0, with any at all.
  std::vector<int> contributors(std::int64_t round) const;
  /// The numbers, within the step, of a rank's micro-batches.
  std::vector<std::int64_t> of(int rank) const;

 private:
  std::vector<std::int64_t> shares_;
};

}  // namespace atl::parallel
