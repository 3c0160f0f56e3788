#pragma once

#include <array>
#include <cstdint>

#include "atoll/ops/run.h"

namespace atl::ops {

/// Where blocks lie in a tensor: block (i, j) begins at element offset + i * outer + j * inner.
struct BlockPlaces {
  std::int64_t offset = 0;
  std::int64_t outer = 0;
  std::int64_t inner = 0;
};

/// Copies counts[0] x counts[1] blocks of `length` elements that lie together, from their places in
/// x to those in y: what transposes and cuts of whole rows come to. One dtype; x and y do not
/// overlap, nor do blocks of y. Throws Error(kInternal) for a block that is not within its tensor.
void copy_blocks(Run& run, std::array<std::int64_t, 2> counts, std::int64_t length, Tensor x,
                 BlockPlaces from, Tensor y, BlockPlaces to);

}  // namespace atl::ops
