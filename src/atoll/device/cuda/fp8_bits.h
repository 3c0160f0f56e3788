#pragma once

// For kernel.h alone, which says what ATOLL_HOST_AND_DEVICE is: numbers of 8 bits without the
// instructions that GPUs have for them from compute capability 8.9 on.

#include <bit>
#include <cstdint>

namespace atl::cuda {

/// The code of the nearest number with so many bits of fraction, ties to even: `most` for what is
/// larger than all, 0x7f for NaN.
constexpr ATOLL_HOST_AND_DEVICE std::uint32_t fp8_bits(float x, int fraction_bits, int bias,
                                                       std::uint32_t most) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return 0x7fU;
  const int dropped = 23 - fraction_bits;
  std::uint32_t code = 0;
  if (magnitude < static_cast<std::uint32_t>(128 - bias) << 23) {
    // Below the smallest normal number: multiples of one step, which adding 1.5 * 2^23 steps
    // rounds to.
    const float shift =
        1.5F * std::bit_cast<float>(static_cast<std::uint32_t>(128 - bias + dropped) << 23);
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + shift) -
           std::bit_cast<std::uint32_t>(shift);
  } else {
    const std::uint32_t half = (1U << (dropped - 1)) - 1 + (magnitude >> dropped & 1U);
    code = (magnitude + half) >> dropped;
    code -= static_cast<std::uint32_t>(127 - bias) << fraction_bits;
    if (code > most) code = most;
  }
  return code | (bits >> 24 & 0x80U);
}
constexpr ATOLL_HOST_AND_DEVICE std::uint32_t e4m3_bits(float x) {
  return fp8_bits(x, 3, 7, 0x7e);
}
constexpr ATOLL_HOST_AND_DEVICE std::uint32_t e5m2_bits(float x) {
  return fp8_bits(x, 2, 15, 0x7b);
}

}  // namespace atl::cuda
