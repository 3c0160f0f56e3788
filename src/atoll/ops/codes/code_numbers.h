#pragma once

// Numbers of codes in one place for the host and for kernels. compress/magnitude.h, int4.cpp,
// int8.cpp and feedback.cpp have the same for a CPU's lanes; parallel/compress/gpu_codes_test.cpp
// compares the bytes.

#include <bit>
#include <cstdint>

#include "atoll/device/cuda/kernel.h"

namespace atl::ops {

/// Values of 2^126 and more, infinities and NaN are not encoded.
constexpr std::int32_t kCodeLimitBits = 253 << 23;
/// A block whose values are all below 2^-100 is one of zeros.
constexpr std::int32_t kCodeTinyBits = 27 << 23;
constexpr std::uint32_t kCodeNan = 0x7fc00000;

/// The bits of |value|: they order as magnitudes do, NaN and infinity above all others.
constexpr ATOLL_HOST_AND_DEVICE std::int32_t magnitude_bits(float value) {
  return std::bit_cast<std::int32_t>(value) & 0x7fffffff;
}

/// Adding this and taking it away again rounds values of at most that magnitude to multiples of
/// 2^-22 of the power of two above it.
constexpr ATOLL_HOST_AND_DEVICE float grid_offset(std::int32_t largest) {
  const std::int32_t exponent = (largest >> 23) + 2;
  return 1.5F * std::bit_cast<float>(exponent << 23);
}

/// The scale of a block whose largest magnitude has these bits.
struct CodeScale {
  bool is_encodable;
  float value;    // of a code of 1; NaN where the block cannot be encoded
  float inverse;  // codes of a value of 1
};
constexpr ATOLL_HOST_AND_DEVICE CodeScale code_scale(int bits, std::int32_t largest) {
  if (largest >= kCodeLimitBits) return {false, std::bit_cast<float>(kCodeNan), 0};
  const float most = bits == 4 ? 7.0F : 127.0F;
  const float top = largest < kCodeTinyBits ? 0.0F : std::bit_cast<float>(largest);
  return {true, top / most, top == 0 ? 0.0F : most / top};
}

/// The value of a code; NaN where the block cannot be encode_codes()'s.
constexpr ATOLL_HOST_AND_DEVICE float value_of_code(int bits, int code, float scale) {
  const float limit = bits == 4 ? 0x1p124F : 0x1p120F;
  const bool is_right = scale >= 0 && scale <= limit && (bits == 8 || code > -8);
  return is_right ? static_cast<float>(code) * scale : std::bit_cast<float>(kCodeNan);
}

}  // namespace atl::ops
