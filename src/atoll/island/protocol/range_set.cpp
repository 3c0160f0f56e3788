#include "atoll/island/protocol/range_set.h"

#include <algorithm>
#include <iterator>

#include "atoll/base/check.h"

namespace atl::island {

std::optional<RangeSet> RangeSet::of(std::span<const BatchRange> ranges) {
  RangeSet set;
  for (const BatchRange& range : ranges) {
    if (range.begin < 0 || range.end < range.begin || set.overlaps(range)) return std::nullopt;
    set.add(range);
  }
  return set;
}

void RangeSet::add(BatchRange range) {
  ATOLL_CHECK(range.begin <= range.end, "a backwards range: {} to {}", range.begin, range.end);
  if (range.begin == range.end) return;
  auto at = ends_.upper_bound(range.begin);
  if (at != ends_.begin() && std::prev(at)->second >= range.begin) --at;
  while (at != ends_.end() && at->first <= range.end) {
    range.begin = std::min(range.begin, at->first);
    range.end = std::max(range.end, at->second);
    num_batches_ -= at->second - at->first;
    at = ends_.erase(at);
  }
  ends_.emplace_hint(at, range.begin, range.end);
  num_batches_ += range.size();
}

void RangeSet::remove(BatchRange range) {
  ATOLL_CHECK(range.begin <= range.end, "a backwards range: {} to {}", range.begin, range.end);
  auto at = ends_.upper_bound(range.begin);
  if (at != ends_.begin() && std::prev(at)->second > range.begin) --at;
  while (at != ends_.end() && at->first < range.end) {
    const BatchRange found = {at->first, at->second};
    at = ends_.erase(at);
    num_batches_ -= std::min(found.end, range.end) - std::max(found.begin, range.begin);
    if (found.begin < range.begin) ends_.emplace_hint(at, found.begin, range.begin);
    if (found.end > range.end) at = ends_.emplace_hint(at, range.end, found.end);
  }
}

void RangeSet::add(const RangeSet& other) {
  for (const auto& [begin, end] : other.ends_) add(BatchRange{begin, end});
}

void RangeSet::remove(const RangeSet& other) {
  for (const auto& [begin, end] : other.ends_) remove(BatchRange{begin, end});
}

bool RangeSet::contains(BatchRange range) const {
  if (range.begin >= range.end) return true;
  const auto after = ends_.upper_bound(range.begin);
  return after != ends_.begin() && std::prev(after)->second >= range.end;
}

bool RangeSet::contains(const RangeSet& other) const {
  return std::all_of(other.ends_.begin(), other.ends_.end(), [&](const auto& range) {
    return contains(BatchRange{range.first, range.second});
  });
}

bool RangeSet::overlaps(BatchRange range) const {
  if (range.begin >= range.end) return false;
  const auto after = ends_.upper_bound(range.begin);
  if (after != ends_.begin() && std::prev(after)->second > range.begin) return true;
  return after != ends_.end() && after->first < range.end;
}

std::vector<BatchRange> RangeSet::ranges() const {
  std::vector<BatchRange> ranges;
  ranges.reserve(ends_.size());
  for (const auto& [begin, end] : ends_) ranges.push_back({begin, end});
  return ranges;
}

}  // namespace atl::island
