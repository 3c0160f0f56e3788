#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "atoll/island/protocol/protocol.h"
#include "atoll/island/protocol/range_set.h"

namespace atl::island {

/// LeaseTable of a run without an end.
inline constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

/// Which global batches are free, leased to an island, or consumed: each is exactly one of the
/// three at any time. The order is canonical: grants take the lowest free batches first, so that
/// the same calls give the same leases. Pure bookkeeping, O(log n) in the number of ranges.
///
/// What changes it returns false, and changes nothing, when it is asked for something that cannot
/// be: a batch that is not in the state it should be in, or that is named twice.
class LeaseTable {
 public:
  /// `total_batches` of the run, or kEndless.
  explicit LeaseTable(std::int64_t total_batches);

  /// Leases the lowest free `num_batches` to an island, fewer when the run has no more; nothing
  /// when none is free. Ranges come ascending and never touch.
  std::vector<BatchRange> grant(IslandId island, std::int64_t num_batches);
  /// Leases exactly these free batches: what a log says that grant() gave.
  [[nodiscard]] bool lease(IslandId island, std::span<const BatchRange> ranges);
  /// Untrained, or trained in vain: leased to this island before, free now.
  [[nodiscard]] bool give_back(IslandId island, std::span<const BatchRange> ranges);
  /// Committed: leased to this island before, consumed now.
  [[nodiscard]] bool consume(IslandId island, std::span<const BatchRange> ranges);
  /// VOID: consumed before, free now.
  [[nodiscard]] bool unconsume(std::span<const BatchRange> ranges);

  /// Whether all of these are leased to this island.
  bool holds(IslandId island, std::span<const BatchRange> ranges) const;
  /// What is leased to an island.
  std::vector<BatchRange> held_by(IslandId island) const;
  std::vector<BatchRange> consumed() const { return consumed_.ranges(); }

  /// Batches that can be granted; of an endless run what is left up to kEndless.
  std::int64_t num_free() const { return total_ - num_leased_ - consumed_.num_batches(); }
  std::int64_t num_leased() const { return num_leased_; }
  std::int64_t num_consumed() const { return consumed_.num_batches(); }
  std::int64_t total_batches() const { return total_; }
  /// Batches that are consumed, or somebody trains on.
  std::int64_t num_given() const { return num_leased_ + consumed_.num_batches(); }
  /// No batch from this one on was ever leased.
  std::int64_t high_water() const { return high_water_; }
  /// Whether every batch of the run is consumed.
  bool is_done() const { return consumed_.num_batches() == total_; }

 private:
  bool is_free(const RangeSet& set) const;
  void take(IslandId island, BatchRange range);
  void release(IslandId island, const RangeSet& set);

  std::int64_t total_;
  std::int64_t high_water_ = 0;
  std::int64_t num_leased_ = 0;
  RangeSet free_;  // below high_water_; from there on all is free up to total_
  RangeSet consumed_;
  std::map<IslandId, RangeSet> leased_;  // without empty ones
};

}  // namespace atl::island
