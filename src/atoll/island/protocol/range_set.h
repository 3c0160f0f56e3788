#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// A set of global batches, kept as the fewest ranges that say it, lowest first. Adding and
/// removing a range take O(log n) and what it touches. Empty ranges stand for nothing.
class RangeSet {
 public:
  RangeSet() = default;
  /// The batches of `ranges`, in any order; nothing when one is negative or backwards or when two
  /// overlap: such a list names a batch twice.
  static std::optional<RangeSet> of(std::span<const BatchRange> ranges);

  /// Union with a range; `range` must not be backwards.
  void add(BatchRange range);
  /// Difference with a range; `range` must not be backwards.
  void remove(BatchRange range);
  /// Both for each range of another set.
  void add(const RangeSet& other);
  void remove(const RangeSet& other);

  /// Whether every batch of `range` is in it.
  bool contains(BatchRange range) const;
  bool contains(const RangeSet& other) const;
  /// Whether any batch of `range` is in it.
  bool overlaps(BatchRange range) const;

  bool empty() const { return ends_.empty(); }
  std::int64_t num_batches() const { return num_batches_; }
  std::size_t num_ranges() const { return ends_.size(); }
  /// The lowest range; the set must not be empty.
  BatchRange front() const { return {ends_.begin()->first, ends_.begin()->second}; }
  std::vector<BatchRange> ranges() const;
  bool operator==(const RangeSet&) const = default;

 private:
  std::map<std::int64_t, std::int64_t> ends_;  // by begin; neither touching nor overlapping
  std::int64_t num_batches_ = 0;
};

}  // namespace atl::island
