#pragma once

// How many threads each kind of kernel gets: pure functions of shapes, never of the GPU, so that
// sums are cut alike on all of them.

#include <algorithm>
#include <cstdint>

#include "atoll/device/cuda/launch.h"

namespace atl::ops::cuda {

using atl::cuda::LaunchShape;

constexpr std::int64_t num_blocks(std::int64_t items, std::int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

/// A warp for each of `rows`.
constexpr LaunchShape warp_a_row(std::int64_t rows, int threads) {
  return {.blocks_x = static_cast<std::uint32_t>(num_blocks(rows, threads / 32)),
          .threads = static_cast<std::uint32_t>(threads)};
}

/// A thread for each `pack` elements.
constexpr LaunchShape thread_a_pack(std::int64_t elements, std::int64_t pack, int threads) {
  return {.blocks_x = static_cast<std::uint32_t>(num_blocks(elements, pack * threads)),
          .threads = static_cast<std::uint32_t>(threads)};
}

/// Of AddPartials: 32 columns a block.
constexpr LaunchShape add_partials_shape(std::int64_t columns) {
  return {.blocks_x = static_cast<std::uint32_t>(num_blocks(columns, 32)),
          .threads = 256,
          .shared_bytes = 256 * sizeof(float)};
}

/// How rows are cut for sums over them: at most `most` blocks of at least `least` rows.
struct RowBlocks {
  std::int64_t rows_per_block = 0;
  std::int64_t count = 0;
};
constexpr RowBlocks row_blocks(std::int64_t rows, std::int64_t least, std::int64_t most = 64) {
  const std::int64_t each = std::max(least, num_blocks(rows, most));
  return {each, num_blocks(rows, each)};
}

}  // namespace atl::ops::cuda
