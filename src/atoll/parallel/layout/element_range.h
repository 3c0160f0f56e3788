#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace atl::parallel {

/// Elements [begin, end) of a flat vector.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// Calls fn(begin, end) for what two lists of ranges have in common, in order. Both are ascending,
/// and the ranges of one do not overlap.
template <typename Fn>
void intersect(std::span<const ElementRange> a, std::span<const ElementRange> b, Fn&& fn) {
  auto x = a.begin();
  auto y = b.begin();
  while (x != a.end() && y != b.end()) {
    const std::int64_t begin = std::max(x->begin, y->begin);
    const std::int64_t end = std::min(x->end, y->end);
    if (begin < end) fn(begin, end);
    if (x->end < y->end) {
      ++x;
    } else {
      ++y;
    }
  }
}

/// Elements of all of them.
inline std::int64_t num_elements(std::span<const ElementRange> ranges) {
  std::int64_t sum = 0;
  for (const ElementRange& range : ranges) sum += range.size();
  return sum;
}

}  // namespace atl::parallel
