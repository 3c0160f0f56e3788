#pragma once

// The narrow float formats that files keep: bf16 (f32's upper half) and f16 (IEEE 754 binary16).
// To narrow is to round to the nearest, ties to even; infinities and NaNs stay what they are.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "atoll/simd/bf16.h"
#include "atoll/tensor/spec.h"

namespace atl::ckpt {

/// The f32 of the same value.
inline float bf16_to_f32(std::uint16_t bits) {
  return to_f32(Bf16{bits});
}

/// The nearest bf16. A NaN keeps its sign and upper payload and becomes quiet.
inline std::uint16_t f32_to_bf16(float value) {
  return to_bf16(value).bits;
}

/// The f32 of the same value.
inline float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  if (magnitude < 0x400) {  // zero, subnormal: units of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
}

/// The nearest f16; from 65520 on that is infinity. A NaN keeps its sign and becomes quiet.
inline std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000) {
    result = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x477ff000) {
    result = 0x7c00;
  } else if (magnitude < 0x38800000) {
    // Below 2^-14 the result counts units of 2^-24, the spacing of f32 at 0.5: adding rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    result = std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5f);
  } else {
    result = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  }
  return static_cast<std::uint16_t>(sign | result);
}

/// Whether convert_to_f32 takes this dtype: f32, f64, bf16, f16.
bool converts_to_f32(Dtype dtype);

/// Reads out.size() elements of `dtype`, at any alignment, as f32 (f64 is rounded). Throws
/// Error(kInternal) when the bytes are not as many or the dtype is not a float.
void convert_to_f32(Dtype dtype, std::span<const std::byte> bytes, std::span<float> out);

/// Writes values.size() elements as `dtype`, the reverse of convert_to_f32; same errors.
void convert_from_f32(std::span<const float> values, Dtype dtype, std::span<std::byte> out);

/// From one float dtype to another at any alignment: copied when they are the same, else by way of
/// f32, a small piece at a time. Throws Error(kInternal) as convert_to_f32 does, and as check_fits
/// and check_fits_f32 do.
void convert_floats(Dtype from, std::span<const std::byte> in, Dtype to, std::span<std::byte> out,
                    std::string_view tensor);

/// Throws Error(kUser) naming `tensor` and the value when a finite value would become infinite, as
/// those from 65520 on do in f16 and from 3.396e38 on in bf16; other dtypes hold every f32.
void check_fits(std::span<const float> values, Dtype dtype, std::string_view tensor);

/// The same for elements of `from` that are to become f32, which too large f64 cannot.
void check_fits_f32(Dtype from, std::span<const std::byte> bytes, std::string_view tensor);

}  // namespace atl::ckpt
