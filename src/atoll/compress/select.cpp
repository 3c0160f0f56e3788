#include "atoll/compress/select.h"

#include <algorithm>
#include <cstring>

#include "atoll/base/check.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
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

/// bitmap: which keys are not below `least`.
void MarkKept(const std::int32_t* keys, std::size_t n, std::int32_t least, std::uint64_t* bitmap) {
  const hn::ScalableTag<std::int32_t> d;
  const auto bound = hn::Set(d, least);
  for (std::size_t begin = 0; begin < n; begin += 64) {
    std::uint64_t below = 0;
    const std::size_t end = std::min(begin + 64, n);
    std::size_t i = begin;
    for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
      std::uint8_t bytes[8] = {};
      hn::StoreMaskBits(d, hn::Lt(hn::LoadU(d, keys + i), bound), bytes);
      std::uint64_t bits = 0;
      std::memcpy(&bits, bytes, sizeof(bits));
      below |= bits << (i - begin);
    }
    for (; i < end; ++i) below |= std::uint64_t{keys[i] < least} << (i - begin);
    const std::size_t behind = 64 - (end - begin);
    bitmap[begin / 64] = ~below & ~std::uint64_t{0} >> behind;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::compress {

namespace {

HWY_EXPORT(LeastKept);
HWY_EXPORT(MarkKept);

// Takes out the last `surplus` of those that equal `least`.
void drop_ties(std::span<const std::int32_t> keys, std::int32_t least, std::size_t surplus,
               std::uint64_t* bitmap) {
  for (std::size_t i = keys.size(); surplus > 0; --surplus) {
    do --i;
    while (keys[i] != least);
    bitmap[i / 64] &= ~(std::uint64_t{1} << i % 64);
  }
}

}  // namespace

void select_largest(std::span<const std::int32_t> keys, std::size_t count, std::uint64_t* bitmap) {
  ATOLL_CHECK(count <= keys.size(), "{} of {} keys", count, keys.size());
  const std::size_t words = (keys.size() + 63) / 64;
  if (count == 0) {
    std::fill_n(bitmap, words, std::uint64_t{0});
    return;
  }
  const std::int32_t least = HWY_DYNAMIC_DISPATCH(LeastKept)(keys.data(), keys.size(), count);
  HWY_DYNAMIC_DISPATCH(MarkKept)(keys.data(), keys.size(), least, bitmap);
  std::size_t marked = 0;
  for (std::size_t word = 0; word < words; ++word) {
    marked += static_cast<std::size_t>(std::popcount(bitmap[word]));
  }
  drop_ties(keys, least, marked - count, bitmap);
}

}  // namespace atl::compress
#endif  // HWY_ONCE
