#pragma once

// How codes and tables of pieces lie in memory, for the host and for kernels.

#include <cstdint>

namespace atl::ops {

/// Elements of a block that has a scale of its own.
inline constexpr std::int64_t kCodeBlock = 256;

/// Columns of a table of pieces, (pieces, 3) of i64.
enum PieceColumn : std::int64_t {
  kPieceBegin,  ///< first element of the flat vector
  kPieceCount,  ///< elements
  kPieceByte,   ///< where its code begins
  kPieceColumns
};

}  // namespace atl::ops
