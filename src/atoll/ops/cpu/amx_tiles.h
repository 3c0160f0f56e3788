#pragma once

// Products of bf16 in the tile registers of AMX, for one thread: packing of operands and the loop
// over tiles. All k is counted in steps of 32 terms, which is what one instruction sums. A packed
// tile is 16 rows of 64 bytes. Of the left operand it holds 16 rows of 32 terms; of the right one
// 16 columns, as 16 pairs of terms (k, k + 1) for each. Callers hold a simd::AmxTiles, except for
// packing.

#include <cstddef>
#include <cstdint>

#include "atoll/simd/bf16.h"

namespace atl::ops::cpu {

constexpr std::int64_t kAmxRows = 16;                    ///< of a tile; also its columns of c
constexpr std::int64_t kAmxTerms = 32;                   ///< of a sum, in one step
constexpr std::int64_t kAmxTile = kAmxRows * kAmxTerms;  ///< elements of a tile
constexpr std::int64_t kAmxBlock = 2 * kAmxRows;  ///< rows and columns of c, computed together

/// Steps that `terms` terms take.
constexpr std::int64_t amx_steps(std::int64_t terms) {
  return (terms + kAmxTerms - 1) / kAmxTerms;
}
/// Rows or columns, padded to what is computed together.
constexpr std::int64_t amx_padded(std::int64_t count) {
  return (count + kAmxBlock - 1) / kAmxBlock * kAmxBlock;
}

/// What will be read soon: `rows` rows of `row_bytes`, `stride` bytes apart. They are asked for
/// beside the arithmetic, some lines a step, and come to the second-level cache.
struct AmxAhead {
  const void* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 0;  ///< 0: nothing
};

/// The left operand, or a part of it. In place its rows lie `row_bytes` apart, and the terms of
/// steps follow each other; packed, tiles of a row of tiles follow each other.
struct AmxLeft {
  const Bf16* data = nullptr;
  std::int64_t row_bytes = kAmxTerms * 2;  ///< from row to row of a tile
  std::int64_t step = kAmxTile;            ///< elements from step to step
  std::int64_t tile = 0;                   ///< elements from 16 rows to the next
  /// Elements from a term's upper half to its lower half, each a bf16: the operand is their sum.
  /// 0: it has no lower half.
  std::int64_t low = 0;
  /// Packed tiles that stand for the last step of all rows, where in place the step would reach
  /// beyond the row; null: none. A lower half follows its upper half.
  const Bf16* last_step = nullptr;
  /// Packed tiles, all steps, that stand for the last rows where these are no 32; null: none.
  const Bf16* last_rows = nullptr;
};

/// A stretch of `steps` steps of the sums of c (rows, cols). What is summed so far lies in
/// `partial` between stretches: blocks of 32 x 32, those of 32 columns one below the other. The
/// last stretch ends in c = [c +] sums + bias, rounded where it is narrow.
struct AmxProduct {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t steps = 0;
  AmxLeft a;
  const Bf16* b = nullptr;     ///< packed; 16 columns after the other
  std::int64_t b_columns = 0;  ///< elements from 16 columns to the next
  float* partial = nullptr;
  std::int64_t partial_columns = 0;  ///< elements from 32 columns to the next
  bool is_first = true;              ///< starts from zero
  bool is_last = true;
  const float* bias = nullptr;  ///< (cols), or null
  bool add = false;             ///< c +
  float* c = nullptr;           ///< either this
  Bf16* narrow = nullptr;       ///< or this
  std::int64_t ldc = 0;
  AmxAhead ahead[2];
};

/// While it lives, the calling thread may call amx_multiply. Needs simd::has_amx(); make one for a
/// task. Nothing in it may throw away tiles that another one set up.
class AmxScope {
 public:
  AmxScope();
  ~AmxScope();
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;
};

void amx_multiply(const AmxProduct& product);

/// A matrix as it is stored: row r begins at data + r * stride.
struct AmxSource {
  const Bf16* data = nullptr;
  std::int64_t stride = 0;
};

/// Right tiles of `cols` columns (padded to 32 by zeros), whose terms are rows of `from`: element
/// (k, n) is from.data[k * stride + n]. `columns`: elements from 16 columns to the next in `to`.
void amx_pack_right(AmxSource from, std::int64_t terms, std::int64_t cols, std::int64_t columns,
                    Bf16* to);
/// The same of a transposed matrix: element (k, n) is from.data[n * stride + k].
void amx_pack_right_transposed(AmxSource from, std::int64_t terms, std::int64_t cols,
                               std::int64_t columns, Bf16* to);
/// Left tiles of `rows` rows (padded to 32 by zeros) of a transposed matrix: element (m, k) is
/// from.data[k * stride + m]. `tile`: elements from 16 rows to the next in `to`. Of `two_terms`
/// each 32 elements of a row in `from` are followed by their lower halves, and each tile in `to` by
/// that of the lower halves.
void amx_pack_left_transposed(AmxSource from, std::int64_t terms, std::int64_t rows,
                              std::int64_t tile, bool two_terms, Bf16* to);
/// The same of rows as they are stored: element (m, k) is from.data[m * stride + k].
void amx_pack_left(AmxSource from, std::int64_t terms, std::int64_t rows, std::int64_t tile,
                   bool two_terms, Bf16* to);

/// Multiply-adds of tiles on registers alone, `rounds` times four of them; returns their FLOPs. It
/// is what amx_multiply is measured against.
double amx_tile_loop(std::int64_t rounds);

}  // namespace atl::ops::cpu
