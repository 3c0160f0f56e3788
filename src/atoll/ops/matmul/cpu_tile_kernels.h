#pragma once

// The tiles that f32 products are made of, and which of them this CPU takes.

#include "atoll/ops/matmul/cpu_panels.h"

namespace atl::ops::cpu {

/// Shapes of a tile. They differ with vectors of 64 bytes only; a sum has the same bits in either.
enum class Tile {
  kTall,  ///< 14 x 32: the fewest bytes of packed b to a multiply-add
  kWide,  ///< 8 x 48: the fewest loads, and rows of a that fit the ways of a first-level cache
};

/// A tile's shape and what multiplies by it, for the instruction set at hand.
struct TileKernels {
  TileSize size;
  /// Panels of op(b), one after the other: element (k, n) of a panel at k * size.cols + n.
  void (*pack_panels)(const PanelSource& from, std::int64_t cols, std::int64_t num_k, float* to);
  /// Tiles of op(a), tile_stride elements apart, from element (m, k) at a[k * stride + m]: element
  /// (i, k) of a tile at k * size.rows + i. What is no row is left as it was.
  void (*pack_tiles)(const float* a, std::int64_t stride, std::int64_t rows, std::int64_t num_k,
                     std::int64_t tile_stride, float* to);
  void (*multiply)(const PanelProduct& product);
};

/// Those of the tile that this process takes: what set_tile said, else what is faster.
const TileKernels& tile_kernels();
const TileKernels& tile_kernels(Tile tile);

/// CPU seconds that the tall tile takes to one of the wide tile's, on one block of a product whose
/// operands are in cache. Measured once, at the first call, in less than a millisecond.
double wide_tile_speedup();
/// The wide tile is taken from this speed-up on. Where the tall one runs at 96% or more of the
/// multiply-add loop no tile can reach it (decision 0046).
constexpr double kWideTileWorthIt = 1.05;

/// Takes this tile from now on, whatever is faster. No product may be under way, and scratch that
/// was planned for the other tile may be too small.
void set_tile(Tile tile);
/// Forgets what was set.
void reset_tile();

}  // namespace atl::ops::cpu
