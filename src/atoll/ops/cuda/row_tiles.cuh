#pragma once

// Tiles of rows of groups whose sizes are known on the GPU alone. As many tiles are started as
// there may be at most, and each finds its group: the host waits for nothing.

#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Rows [first, end) of a group. `group` is their number for those left over behind the last one,
/// and -1 where there are none.
struct RowTile {
  int group;
  int first;
  int end;
};

/// Tile number `tile` of at most kRows rows. Group g has the rows [offsets[g], offsets[g + 1]) of
/// `rows`; those left over count as one more. Without offsets all rows are group 0. For all lanes
/// of a warp together.
template <int kRows>
ATOLL_DEVICE RowTile find_row_tile(const Global<const std::int32_t>& offsets, int rows, int tile) {
  const auto groups = static_cast<int>(offsets.size) - 1;
  int before = 0;  // tiles of the groups that were looked at
  for (int first = 0; first <= (groups < 0 ? 0 : groups); first += kWarp) {
    const int g = first + lane();
    const int begin = g > groups ? rows : offsets.load(g);
    const int end = g >= groups ? rows : offsets.load(g + 1);
    const int start = groups < 0 && g == 0 ? 0 : begin;
    const int own = (end - start + kRows - 1) / kRows;
    int sum = own;  // of the lanes up to this one
    for (int d = 1; d < kWarp; d *= 2) {
      const int below = (lane() + kWarp - d) % kWarp;
      const int other = shuffle(sum, below);
      if (lane() >= d) sum += other;
    }
    const std::uint32_t bits = ballot(before + sum > tile);
    if (bits != 0) {  // for the whole warp alike
      int holder = 0;
      while ((bits >> holder & 1) == 0) ++holder;
      const int number = tile - before - shuffle(sum - own, holder);
      const int at = shuffle(start, holder) + number * kRows;
      const int last = shuffle(end, holder);
      return {first + holder, at, at + kRows < last ? at + kRows : last};
    }
    before += shuffle(sum, kWarp - 1);
  }
  return {-1, 0, 0};
}

/// As many tiles as groups of these rows may have at most, with those left over: each has a row.
template <int kRows>
constexpr std::int64_t most_row_tiles(std::int64_t rows, std::int64_t groups) {
  const std::int64_t tiles = rows / kRows + groups + 1;
  return rows < tiles ? rows : tiles;
}

}  // namespace atl::ops::cuda
