#pragma once

// Numbers of 8 bits, for the host and for kernels (Micikevicius et al. 2022, "FP8 Formats for Deep
// Learning"; Open Compute Project, "8-bit Floating Point Specification").

#include <bit>
#include <cstdint>

#include "atoll/device/cuda/kernel.h"
#include "atoll/ops/fp8/layout.h"

namespace atl::ops {

/// How many bits of a number are its fraction.
constexpr ATOLL_HOST_AND_DEVICE int fp8_fraction_bits(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? 3 : 2;
}
/// What is taken from the bits of an exponent.
constexpr ATOLL_HOST_AND_DEVICE int fp8_exponent_bias(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? 7 : 15;
}
/// The largest number.
constexpr ATOLL_HOST_AND_DEVICE float fp8_most(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? 448.0F : 57344.0F;
}
constexpr std::uint8_t kFp8Nan = 0x7f;  // in either format, as GPUs write it

/// The code of the nearest number, ties to even; of what is larger than all, the largest.
constexpr ATOLL_HOST_AND_DEVICE std::uint8_t fp8_code(Fp8Format format, float x) {
  return static_cast<std::uint8_t>(format == Fp8Format::kE4M3 ? atl::cuda::e4m3_bits(x)
                                                              : atl::cuda::e5m2_bits(x));
}

/// The number of a code; NaN where it is none.
constexpr ATOLL_HOST_AND_DEVICE float fp8_value(Fp8Format format, std::uint8_t code) {
  const int fraction_bits = fp8_fraction_bits(format);
  const std::uint32_t most = format == Fp8Format::kE4M3 ? 0x7eU : 0x7bU;
  const std::uint32_t magnitude = code & 0x7fU;
  if (magnitude > most) return std::bit_cast<float>(0x7fc00000U);
  const std::uint32_t fraction = magnitude & ((1U << fraction_bits) - 1);
  const auto exponent = static_cast<int>(magnitude >> fraction_bits);
  const int power = (exponent == 0 ? 1 : exponent) - fp8_exponent_bias(format) - fraction_bits;
  const float step = std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23);
  const std::uint32_t steps = fraction + (exponent == 0 ? 0U : 1U << fraction_bits);
  const float value = static_cast<float>(steps) * step;
  return (code & 0x80U) != 0 ? -value : value;
}

/// What brings numbers into the range of a format.
struct Fp8Scale {
  float value;    ///< what the number of a code is multiplied by
  float inverse;  ///< what a number is multiplied by before it is rounded
};
/// Of numbers whose largest magnitude has these bits. NaN where one of them is not finite. Of
/// numbers below 2^-100 it is that of 2^-100, so that neither is infinite.
constexpr ATOLL_HOST_AND_DEVICE Fp8Scale fp8_scale(Fp8Format format, std::uint32_t largest) {
  constexpr std::uint32_t kLeast = 27U << 23;
  const float nan = std::bit_cast<float>(0x7fc00000U);
  if (largest >= 0x7f800000U) return {nan, nan};
  const float top = std::bit_cast<float>(largest > kLeast ? largest : kLeast);
  return {top / fp8_most(format), fp8_most(format) / top};
}

}  // namespace atl::ops
