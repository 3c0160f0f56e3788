#pragma once

// How signs and tables of their pieces lie in memory, for the host and for kernels.

#include <cmath>
#include <cstdint>

#include "atoll/device/cuda/kernel.h"

namespace atl::ops {

/// What a momentum is divided by before its sign is taken, and a sign multiplied with: the root of
/// the second moment, after the correction for its few updates, plus eps. In these units a
/// parameter moves, so that elements are of one size.
struct SignUnits {
  float root_scale = 1;
  float eps = 0;

  ATOLL_HOST_AND_DEVICE float of(float v) const { return sqrtf(v) * root_scale + eps; }
};

/// Elements of a piece at most, which have one scale.
inline constexpr std::int64_t kSignPiece = 8192;

/// Columns of a table of pieces, (pieces, kSignColumns) of i64.
enum SignColumn : std::int64_t {
  kSignBegin,  ///< first element of the flat vector
  kSignCount,  ///< elements
  kSignByte,   ///< where its code begins: 4 bytes of scale, then a bit an element
  kSignOwned,  ///< where its elements begin among those of its owner
  kSignHeld,   ///< where they begin among those whose moments this rank has; -1: it has not
  kSignDecay,  ///< 1: weight decay applies
  kSignColumns
};

/// Partial sums of a sketch, whatever its size.
inline constexpr std::int64_t kSketchPartials = 1 << 17;

/// 64 random signs (Steele et al. 2014, SplitMix).
constexpr ATOLL_HOST_AND_DEVICE std::uint64_t sketch_signs(std::uint64_t row) {
  std::uint64_t z = (row + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

/// Rows of `numbers` elements that are summed apart: a function of sizes alone.
constexpr ATOLL_HOST_AND_DEVICE std::int64_t sketch_rows_apart(std::int64_t elements,
                                                               std::int64_t numbers) {
  const std::int64_t rows = (elements + numbers - 1) / numbers, blocks = kSketchPartials / numbers;
  return rows <= blocks ? 1 : (rows + blocks - 1) / blocks;
}

}  // namespace atl::ops
