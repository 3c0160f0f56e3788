#pragma once

// Magnitudes as integers: without its sign bit an f32 orders as its bits do, NaN and infinity above
// all others, so that one search finds the largest value and whether all are finite.

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace atl::compress {

/// Codecs with scales take values below 2^126: sums of a few of them, and a scale times the largest
/// code, stay finite.
inline constexpr std::int32_t kLimitBits = 253 << 23;
/// Where all values of a block are below 2^-100, it is of zeros: scales and their inverses stay
/// normal numbers.
inline constexpr std::int32_t kTinyBits = 27 << 23;

/// The bits of |value|.
inline std::int32_t magnitude_bits(float value) {
  return std::bit_cast<std::int32_t>(value) & 0x7fffffff;
}

/// The largest magnitude_bits of a block; 0 of none.
std::int32_t largest_magnitude_bits(std::span<const float> x);

/// The same; throws Error(kNumeric), naming the codec, unless it is below kLimitBits.
std::int32_t require_encodable(std::string_view codec, std::span<const float> x);

}  // namespace atl::compress
