#include "atoll/island/ledger/lease_table.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::island {

LeaseTable::LeaseTable(std::int64_t total_batches) : total_(total_batches) {
  ATOLL_CHECK(total_batches >= 0, "a run of {} batches", total_batches);
}

// `range` is free; what lies between the high-water mark and it becomes free below the mark.
void LeaseTable::take(IslandId island, BatchRange range) {
  if (range.end > high_water_) {
    if (range.begin > high_water_) free_.add({high_water_, range.begin});
    high_water_ = range.end;
  }
  free_.remove(range);
  leased_[island].add(range);
  num_leased_ += range.size();
}

std::vector<BatchRange> LeaseTable::grant(IslandId island, std::int64_t num_batches) {
  RangeSet granted;
  while (granted.num_batches() < num_batches) {
    BatchRange next = free_.empty() ? BatchRange{high_water_, total_} : free_.front();
    next.end = next.begin + std::min(next.size(), num_batches - granted.num_batches());
    if (next.size() == 0) break;
    take(island, next);
    granted.add(next);
  }
  return granted.ranges();
}

bool LeaseTable::is_free(const RangeSet& set) const {
  const std::vector<BatchRange> ranges = set.ranges();
  return std::all_of(ranges.begin(), ranges.end(), [&](BatchRange range) {
    if (range.end > total_) return false;
    range.end = std::min(range.end, high_water_);
    return free_.contains(range);
  });
}

bool LeaseTable::lease(IslandId island, std::span<const BatchRange> ranges) {
  const auto set = RangeSet::of(ranges);
  if (!set || !is_free(*set)) return false;
  for (const BatchRange& range : set->ranges()) take(island, range);
  return true;
}

// `set` is leased to `island`.
void LeaseTable::release(IslandId island, const RangeSet& set) {
  if (set.empty()) return;
  const auto lease = leased_.find(island);
  lease->second.remove(set);
  if (lease->second.empty()) leased_.erase(lease);
  num_leased_ -= set.num_batches();
}

bool LeaseTable::give_back(IslandId island, std::span<const BatchRange> ranges) {
  const auto set = RangeSet::of(ranges);
  if (!set || !holds(island, ranges)) return false;
  release(island, *set);
  free_.add(*set);
  return true;
}

bool LeaseTable::consume(IslandId island, std::span<const BatchRange> ranges) {
  const auto set = RangeSet::of(ranges);
  if (!set || !holds(island, ranges)) return false;
  release(island, *set);
  consumed_.add(*set);
  return true;
}

bool LeaseTable::unconsume(std::span<const BatchRange> ranges) {
  const auto set = RangeSet::of(ranges);
  if (!set || !consumed_.contains(*set)) return false;
  consumed_.remove(*set);
  free_.add(*set);
  return true;
}

bool LeaseTable::holds(IslandId island, std::span<const BatchRange> ranges) const {
  const auto set = RangeSet::of(ranges);
  if (!set) return false;
  if (set->empty()) return true;
  const auto lease = leased_.find(island);
  return lease != leased_.end() && lease->second.contains(*set);
}

std::vector<BatchRange> LeaseTable::held_by(IslandId island) const {
  const auto lease = leased_.find(island);
  return lease == leased_.end() ? std::vector<BatchRange>() : lease->second.ranges();
}

}  // namespace atl::island
