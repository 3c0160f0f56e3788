#pragma once

// bfloat16: f32's upper half, 8 bits of exponent and 7 of fraction. Storage only: arithmetic on it
// runs in f32.

#include <bit>
#include <cstdint>

namespace atl {

/// The element type of Dtype::kBf16.
struct Bf16 {
  std::uint16_t bits = 0;

  friend bool operator==(const Bf16&, const Bf16&) = default;
};

/// The f32 of the same value.
inline float to_f32(Bf16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

/// The nearest bf16, ties to even. Beyond the largest that is infinity; a NaN keeps its sign and
/// upper payload and becomes quiet.
inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

/// One of the two bf16 around `value`, the nearer one more often: up with the probability of the
/// distance, so that the mean is `value` (Gupta et al. 2015, "Deep learning with limited numerical
/// precision", section 3). `draw`: 16 uniform random bits. NaN and infinity as in to_bf16.
inline Bf16 to_bf16_stochastic(float value, std::uint16_t draw) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000) == 0x7f800000) return to_bf16(value);
  return {static_cast<std::uint16_t>((bits + draw) >> 16)};
}

}  // namespace atl
