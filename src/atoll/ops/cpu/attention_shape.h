#pragma once

// How the tiled attention kernels cut their work: functions of the shapes alone.

#include <cstddef>

namespace atl::ops::cpu {

/// Keys per tile: with kMaxQueryTile, 16 KiB of scores.
constexpr std::size_t kKeyTile = 64;
constexpr std::size_t kMaxQueryTile = 64;
/// Keys per band of a tile on the diagonal; finer bands waste less and pay more per band.
constexpr std::size_t kDiagonalBand = 16;
/// Elements of the buffers that hold one tile of queries, keys or values: 32 KiB.
constexpr std::size_t kTileElements = 8192;
/// What padded rows are a multiple of: the widest vector of any instruction set.
constexpr std::size_t kRowAlignment = 16;

/// Queries per tile: as many as kTileElements hold at this head_dim, 32 or 64.
constexpr std::size_t query_tile(std::size_t head_dim) {
  return head_dim <= 128 ? kMaxQueryTile : kMaxQueryTile / 2;
}
/// head_dim up to a multiple of kRowAlignment.
constexpr std::size_t padded(std::size_t head_dim) {
  return (head_dim + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

/// Scores carry this factor, so that 2^x serves for e^x; kLn2 takes it back out of the log-sum-exp.
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

}  // namespace atl::ops::cpu
