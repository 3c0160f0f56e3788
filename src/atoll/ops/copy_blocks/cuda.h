#pragma once

#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

Declined copy_blocks(Run& run, std::array<std::int64_t, 2> counts, std::int64_t length, Tensor x,
                     const BlockPlaces& from, Tensor y, const BlockPlaces& to);

}  // namespace atl::ops::cuda
