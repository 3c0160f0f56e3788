#pragma once

// Which integers stand best for 256 numbers. The K types of ggml cut a row into super-blocks of
// 256; sub-blocks have small integer scales, and the super-block one f16 scale for those. Here the
// integers are chosen; k_quants.h lays them out as bytes.
//
// "Best" is least sum of w (x - y)^2 over the super-block, y being what a reader makes of the
// integers. Least squares gives the scale for given codes and rounding gives the codes for a given
// scale, so the two are applied in turn from several beginnings, and the best end counts.

#include <array>
#include <cstdint>
#include <span>

namespace atl::ckpt {

inline constexpr int kSuperBlock = 256;

/// The numbers of a super-block, or their weights: finite, the weights above 0.
using SuperBlock = std::span<const float, kSuperBlock>;

/// y = scale scales[b] codes[i] - min mins[b] for the sub-blocks b of 32 numbers (Q4_K, Q5_K).
struct AffineFit {
  std::uint16_t scale = 0;  ///< bits of an f16, as `min`
  std::uint16_t min = 0;
  std::array<std::uint8_t, 8> scales = {};  ///< 0 to 63, as `mins`
  std::array<std::uint8_t, 8> mins = {};
  std::array<std::uint8_t, kSuperBlock> codes = {};  ///< 0 to the largest code
};

/// Codes go from 0 to `largest_code`.
AffineFit fit_affine(SuperBlock x, SuperBlock weights, int largest_code);

/// y = scale scales[b] codes[i] for the sub-blocks b of 16 numbers (Q3_K, Q6_K).
struct SymmetricFit {
  std::uint16_t scale = 0;  ///< bits of an f16
  std::array<std::int8_t, 16> scales = {};
  std::array<std::int8_t, kSuperBlock> codes = {};
};

/// Codes go from `lowest_code` to -lowest_code - 1, and scales likewise from `lowest_scale`.
SymmetricFit fit_symmetric(SuperBlock x, SuperBlock weights, int lowest_code, int lowest_scale);

/// The bits of an f16 next to `value`, or of the smallest f16 of its sign where that would be 0 and
/// `value` is not: numbers below f16's range become coarse, not zero.
std::uint16_t nonzero_f16(float value);

}  // namespace atl::ckpt
