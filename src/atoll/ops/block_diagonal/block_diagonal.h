#pragma once

#include <span>

#include "atoll/ops/run.h"

namespace atl::ops {

/// Rows of a tall matrix that form one block of a block-diagonal one.
struct DiagonalBlock {
  std::int64_t row_begin = 0;  ///< first row of the block in the block-diagonal matrix
  std::int64_t rows = 0;
};

/// Spreads the blocks that lie one below the other in `x` along a diagonal: y = 0 but for
/// y[blocks[k].row_begin + i, k r + j] = scale x[(rows of blocks before k) + i, j].
///
/// x: (sum of blocks[k].rows, r)  y: (N, num_blocks r); f32, f64 or bf16. Blocks must not overlap.
/// A product with y applies to each part of a fused Linear its own low-rank factor (Hu et al. 2021,
/// "LoRA").
void block_diagonal(Run& run, double scale, Tensor x, std::span<const DiagonalBlock> blocks,
                    Tensor y);
/// dx += scale times the blocks of dy: the gradient of block_diagonal. f32 or f64.
void block_diagonal_backward(Run& run, double scale, Tensor dy,
                             std::span<const DiagonalBlock> blocks, Tensor dx);

}  // namespace atl::ops
