#pragma once

// What the tiled product hands to its kernels.

#include <cstdint>

namespace atl::ops::cpu {

/// Rows and columns of c that the kernel holds in registers.
struct TileSize {
  std::int64_t rows;
  std::int64_t cols;
};

/// Where columns of op(b) lie: element (k, n) at b[k * stride + n], or b[n * stride + k] when
/// transposed.
struct PanelSource {
  const float* b;
  std::int64_t stride;
  bool transposed;
};

/// c (rows, cols) = start + op(a) op(b) over num_k terms, b packed in panels of a tile's columns.
struct PanelProduct {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t num_k = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0;         ///< a in place: from row to row; 0: a is packed in tiles
  const float* next_a = nullptr;  ///< a in place: the tile that is read after these rows, or null
  std::int64_t a_tile = 0;        ///< packed: from tile to tile
  const float* b = nullptr;
  float* c = nullptr;
  std::int64_t ldc = 0;
  bool add = false;              ///< start from c
  const float* start = nullptr;  ///< else from this row, or from zero where it is null
};

}  // namespace atl::ops::cpu
