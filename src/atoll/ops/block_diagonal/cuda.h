#pragma once

#include "atoll/ops/block_diagonal/block_diagonal.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

Declined block_diagonal(Run& run, double scale, Tensor x, std::span<const DiagonalBlock> blocks,
                        Tensor y);
Declined block_diagonal_backward(Run& run, double scale, Tensor dy,
                                 std::span<const DiagonalBlock> blocks, Tensor dx);

}  // namespace atl::ops::cuda
