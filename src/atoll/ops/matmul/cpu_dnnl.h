#pragma once

// Matrix products by oneDNN: the product is cut into blocks whose sizes depend on the shape alone,
// each block is one single-threaded primitive, and our own threads share the blocks out. That, and
// not oneDNN's threading, is why the number of threads changes no bit.

#include <compare>
#include <cstddef>
#include <functional>

#include "atoll/ops/matmul/args.h"

namespace atl::ops::cpu {

/// Serves f32 in host memory, reading b as it lies: for products too small for matmul_tiled.
Declined matmul_dnnl(Run& run, const MatmulArgs& args);

/// The operands of multiply, laid out as in ops::matmul.
struct Operands {
  const float* a;
  const float* b;
  const std::byte* packed;  ///< b from pack_block, or nullptr: read b
  float* c;
  const float* bias;  ///< or nullptr
};

/// A piece of a product: rows of op(a) times columns of op(b).
struct MatmulBlock {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;  ///< leading dims: how far apart rows lie where the operand is stored
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  std::int64_t layout_m = 0;  ///< rows of the block that chose the packed layout; 0: b is plain
  bool a_transposed = false;
  bool b_transposed = false;
  bool bias = false;
  bool accumulate = false;

  friend auto operator<=>(const MatmulBlock&, const MatmulBlock&) = default;
};

/// How a product is cut into blocks, a function of its shape alone.
struct MatmulGrid {
  std::int64_t m_block;  ///< at most kMaxBlockRows
  std::int64_t n_block;  ///< at most kMaxBlockCols
  std::int64_t m_blocks;
  std::int64_t n_blocks;
};
/// Bounds of a block's sizes.
constexpr std::int64_t kMaxBlockRows = 256;
constexpr std::int64_t kMaxBlockCols = 384;
/// Blocks that a product is cut into where it is large enough, so that threads can share it out.
constexpr std::int64_t kEnoughBlocks = 16;
MatmulGrid cut_matmul(const MatmulShape& shape);

/// A part of a stored matrix: `rows` x `cols` elements from (row, col).
struct MatmulArea {
  std::int64_t row;
  std::int64_t col;
  std::int64_t rows;
  std::int64_t cols;
};
/// Blocks of rows of c that one task computes from the same columns of b, at most.
constexpr std::int64_t kMaxGroup = 4;
/// Calls compute() for each group of blocks of c, threads sharing them out: up to kMaxGroup blocks
/// one below the other, fewer where threads would have nothing to do.
void for_each_group(Run& run, const MatmulShape& shape, const MatmulGrid& grid,
                    const std::function<void(const MatmulArea& area)>& compute);

/// Even blocks of at most `most`, each a multiple of `unit`.
std::int64_t even_block(std::int64_t total, std::int64_t most, std::int64_t unit);

/// multiply of one block on the calling thread.
void multiply_block(const MatmulBlock& block, const Operands& operands);
/// Repacks the block's b, which lies as its leading dim says, into packed_block_bytes in the layout
/// that this CPU's kernels read best, on the calling thread.
/// Blocks that read it must have the same sizes (but m), leading dims and layout_m.
/// `tail_m`: the other number of rows, beside layout_m, of blocks that share it. False when the
/// kernels read b as it is: then nothing was written.
bool pack_block(const MatmulBlock& block, std::int64_t tail_m, const float* b, std::byte* packed);
/// Bytes that a packed b of k x n may take: an upper bound that asks no CPU.
std::size_t packed_block_bytes(std::int64_t k, std::int64_t n);

/// c = op(a) op(b) [+ bias] [+ c] in f32; operands.packed does not count. Throws Error(kInternal)
/// with oneDNN's words.
void multiply(Run& run, const MatmulShape& shape, const Operands& operands, bool accumulate);

}  // namespace atl::ops::cpu
