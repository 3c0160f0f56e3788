#pragma once

// What multiplies with int8 weights: arithmetic in f32 on what they stand for; or activations are
// rounded to int8 too, and products are those of integers.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace atl::ops {

/// How products with an Int8Matrix are computed. Those but kF32 round each kInt8Group neighbours of
/// a row of activations to q s, as int8_rounding says. A group's products are then summed in
/// integers, which is exact, and groups in f32, one after the other. So all of them have the same
/// bits, and a row's depend on that row and the matrix alone: not on the CPU, nor on how many rows
/// there are.
enum class Int8Arithmetic {
  kF32,     ///< activations are not rounded
  kVector,  ///< in 16 bits, by whatever vectors there are
  kVnni,    ///< AVX-512 with VNNI
  kAmx,     ///< tiles of AMX
  kAuto,    ///< the last of these that the CPU has; kVnni for up to four rows, of sixteen in a tile
};

/// What this process does with so many rows of activations, kF32 unless something else was set.
/// Never kAuto.
Int8Arithmetic int8_arithmetic(std::int64_t rows);

/// Takes this one from now on. It belongs to the process, as bf16_arithmetic does. Throws
/// Error(kUser) for one that this CPU does not have.
void set_int8_arithmetic(Int8Arithmetic arithmetic);
/// Whether set_int8_arithmetic takes it here.
bool has_int8_arithmetic(Int8Arithmetic arithmetic);

/// "f32", "vector", "vnni", "amx" or "auto".
std::string_view int8_arithmetic_name(Int8Arithmetic arithmetic);
/// The one of this name. Throws Error(kInternal) for another.
Int8Arithmetic int8_arithmetic_named(std::string_view name);

/// How a group of activations is rounded: q = nearest(x factor), s = scale.
struct Int8Rounding {
  float scale = 0;
  float factor = 0;
};
/// For a group whose largest magnitude is this. Where that is not finite the scale is NaN, and so
/// is what the group is multiplied into; groups below 1.5e-36 are zeros.
inline Int8Rounding int8_rounding(float largest) {
  constexpr float kSmallest = 127 * std::numeric_limits<float>::min();  // whose scale is normal
  if (!std::isfinite(largest)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (largest < kSmallest) return {};
  return {largest / 127.0F, 127.0F / largest};
}

}  // namespace atl::ops
