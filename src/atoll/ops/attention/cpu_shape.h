#pragma once

// How the tiled attention kernels cut their work: functions of the shapes alone.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace atl::ops::cpu {

/// Keys per tile: with kMaxQueryTile, 16 KiB of scores.
constexpr std::size_t kKeyTile = 64;
constexpr std::size_t kMaxQueryTile = 64;
/// Keys per band of a tile that is partly masked; finer bands waste less and pay more per band.
constexpr std::size_t kDiagonalBand = 16;
/// Elements of the buffers that hold one tile of queries, keys or values: 32 KiB.
constexpr std::size_t kTileElements = 8192;
/// The widest head that those buffers hold.
constexpr std::size_t kMaxTiledHeadDim = 256;
/// Elements of the buffers that hold a block of tiles of queries: 64 KiB.
constexpr std::size_t kBlockElements = 2 * kTileElements;
/// The most tiles and queries of such a block.
constexpr std::size_t kMaxBlockTiles = 4;
constexpr std::size_t kMaxQueryBlock = kMaxBlockTiles * kMaxQueryTile;
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
/// Queries per block: as many whole tiles as kBlockElements hold.
constexpr std::size_t query_block(std::size_t head_dim) {
  const std::size_t tile = query_tile(head_dim);
  return std::min(kMaxQueryBlock, kBlockElements / padded(head_dim)) / tile * tile;
}

/// What bounds the keys of a run of queries from below, beside causality; see ops::AttentionMask.
/// Keys are counted from the first that a kernel is given, which need not begin the sequence.
struct FirstKeys {
  std::size_t window = 0;                   ///< 0: none
  const std::int32_t* positions = nullptr;  ///< of the run's queries; null: one document

  /// The first key that query `i` of the run sees, whose own key is `key`.
  std::size_t of(std::size_t i, std::size_t key) const {
    const std::size_t start =
        positions == nullptr ? 0 : key - std::min(key, static_cast<std::size_t>(positions[i]));
    return window == 0 || key < window ? start : std::max(start, key - window + 1);
  }
  /// first_keys[i] = of(first + i, key + i) for a tile of queries from `first` on; what is
  /// left of kMaxQueryTile repeats the last, so that the whole never falls.
  void fill(std::size_t first, std::size_t key, std::size_t num_queries,
            std::int32_t* first_keys) const {
    for (std::size_t i = 0; i < kMaxQueryTile; ++i) {
      const std::size_t query = std::min(i, num_queries - 1);
      first_keys[i] = static_cast<std::int32_t>(of(first + query, key + query));
    }
  }
};

/// Scores carry this factor, so that 2^x serves for e^x; kLn2 takes it back out of the log-sum-exp.
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

}  // namespace atl::ops::cpu
