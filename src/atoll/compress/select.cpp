#include "atoll/compress/select.h"

#include <algorithm>

#include "atoll/base/check.h"

// clang-format off
#include "atoll/ops/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/compress/select.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE std::size_t count_above(const std::int32_t* keys, std::size_t n, std::int32_t limit) {
  const hn::ScalableTag<std::int32_t> d;
  const std::size_t width = hn::Lanes(d);
  const auto bound = hn::Set(d, limit);
  std::size_t even = 0;
  std::size_t odd = 0;
  std::size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    even += hn::CountTrue(d, hn::Gt(hn::LoadU(d, keys + i), bound));
    odd += hn::CountTrue(d, hn::Gt(hn::LoadU(d, keys + i + width), bound));
  }
  for (; i < n; ++i) even += keys[i] > limit ? 1 : 0;
  return even + odd;
}

struct Range {
  std::int32_t low;
  std::int32_t high;
};

HWY_INLINE Range range_of(const std::int32_t* keys, std::size_t n) {
  const hn::ScalableTag<std::int32_t> d;
  const std::size_t width = hn::Lanes(d);
  auto low = hn::Set(d, keys[0]);
  auto high = low;
  std::size_t i = 0;
  for (; i + width <= n; i += width) {
    const auto key = hn::LoadU(d, keys + i);
    low = hn::Min(low, key);
    high = hn::Max(high, key);
  }
  Range range{hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high))};
  for (; i < n; ++i) {
    range = {std::min(range.low, keys[i]), std::max(range.high, keys[i])};
  }
  return range;
}

/// The largest number that `count` keys are not below, or one of which just so many are not below.
/// Bisection over the keys' range: about a dozen sweeps through the first cache, where sorting or
/// partitioning a part of them moves and mispredicts.
std::int32_t LeastKept(const std::int32_t* keys, std::size_t n, std::size_t count) {
  const Range range = range_of(keys, n);
  std::int64_t low = range.low;
  std::int64_t high = range.high;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    const std::size_t found = count_above(keys, n, static_cast<std::int32_t>(middle - 1));
    if (found == count) return static_cast<std::int32_t>(middle);
    if (found > count) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<std::int32_t>(low);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::compress {

HWY_EXPORT(LeastKept);

void select_largest(std::span<const std::int32_t> keys, std::size_t count, std::uint16_t* indices) {
  ATOLL_CHECK(count <= keys.size() && keys.size() <= 65536, "{} of {} keys", count, keys.size());
  if (count == 0) return;
  const std::int32_t least = HWY_DYNAMIC_DISPATCH(LeastKept)(keys.data(), keys.size(), count);
  std::size_t above = 0;
  std::size_t equal = 0;
  for (const std::int32_t key : keys) {
    above += key > least ? 1 : 0;
    equal += key == least ? 1 : 0;
  }
  // Without a branch, which would be mispredicted: what is not kept is overwritten by the next.
  std::size_t kept = 0;
  if (above + equal == count) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      indices[kept] = static_cast<std::uint16_t>(i);
      kept += keys[i] >= least ? 1 : 0;
    }
    return;
  }
  std::size_t ties = count - above;
  for (std::size_t i = 0; i < keys.size() && kept < count; ++i) {
    const bool is_tie = keys[i] == least && ties > 0;
    if (is_tie) --ties;
    if (is_tie || keys[i] > least) indices[kept++] = static_cast<std::uint16_t>(i);
  }
}

}  // namespace atl::compress
#endif  // HWY_ONCE
