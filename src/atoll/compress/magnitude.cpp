#include "atoll/compress/magnitude.h"

#include <algorithm>

#include "atoll/base/error.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/compress/magnitude.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

std::int32_t LargestMagnitudeBits(const float* x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t width = hn::Lanes(d);
  const auto mask = hn::Set(di, 0x7fffffff);
  auto even = hn::Zero(di);
  auto odd = hn::Zero(di);
  std::size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    even = hn::Max(even, hn::And(mask, hn::BitCast(di, hn::LoadU(d, x + i))));
    odd = hn::Max(odd, hn::And(mask, hn::BitCast(di, hn::LoadU(d, x + i + width))));
  }
  std::int32_t largest = hn::GetLane(hn::MaxOfLanes(di, hn::Max(even, odd)));
  for (; i < n; ++i) largest = std::max(largest, magnitude_bits(x[i]));
  return largest;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::compress {

HWY_EXPORT(LargestMagnitudeBits);

std::int32_t largest_magnitude_bits(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(LargestMagnitudeBits)(x.data(), x.size());
}

std::int32_t require_encodable(std::string_view codec, std::span<const float> x) {
  const std::int32_t largest = largest_magnitude_bits(x);
  if (largest < kLimitBits) return largest;
  throw make_error(ErrorKind::kNumeric,
                   "codec {} was given {}: it takes finite values below 2^126, choose f32 or bf16 "
                   "for others",
                   codec, std::bit_cast<float>(largest));
}

}  // namespace atl::compress
#endif  // HWY_ONCE
