// GCC 12 warns of its own intrinsics, whose unused operand is undefined (GCC's bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "atoll/ops/cpu/amx_tiles.h"

#include <algorithm>
#include <cstring>

#include "atoll/ops/amx/transpose.h"
#include "atoll/simd/amx/tiles.h"

namespace atl::ops::cpu {

namespace {

using std::int64_t;

ATOLL_AMX void set_up_tiles() {
  _tile_loadconfig(&simd::kWholeAmxTiles);
}
ATOLL_AMX void release_tiles() {
  _tile_release();
}

/// Lines that are asked for, some beside each step.
struct AskedRows {
  const std::byte* at;
  int64_t stride;
  int64_t row_bytes;
  int64_t rows;
  int64_t column;
  int64_t lines;  ///< beside each step

  ATOLL_AMX inline void ask() {
    for (int64_t i = 0; i < lines; ++i) {
      __builtin_prefetch(at + column, 0, 2);
      column += 64;
      if (column < row_bytes) continue;
      column = 0;
      at += stride;
      if (--rows == 0) lines = 0;
    }
  }
};

AskedRows to_ask(const AmxAhead& rows, int64_t steps) {
  const int64_t lines = rows.rows * ((rows.row_bytes + 63) / 64);
  return {static_cast<const std::byte*>(rows.data),
          rows.stride,
          rows.row_bytes,
          rows.rows,
          0,
          (lines + steps - 1) / steps};
}

struct Asking {
  AskedRows first;
  AskedRows second;

  ATOLL_AMX inline void ask() {
    first.ask();
    second.ask();
  }
};

/// Two tiles of rows and their steps.
struct LeftTiles {
  const Bf16* first;
  const Bf16* second;
  int64_t row_bytes;
  int64_t step;
  int64_t low;
};
struct RightTiles {
  const Bf16* first;
  const Bf16* second;
};

// Tiles 0 to 3 are c, 4 and 5 of a, 6 and 7 of b.
ATOLL_AMX inline void add_steps(const LeftTiles& a, const RightTiles& b, int64_t steps,
                                Asking& ahead) {
  const Bf16* a0 = a.first;
  const Bf16* a1 = a.second;
  const Bf16* b0 = b.first;
  const Bf16* b1 = b.second;
  const auto row = static_cast<std::size_t>(a.row_bytes);
  if (a.low != 0) {
    for (int64_t s = 0; s < steps; ++s) {
      _tile_loadd(4, a0, row);
      _tile_loadd(6, b0, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b1, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a1, row);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      _tile_loadd(4, a0 + a.low, row);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a1 + a.low, row);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      a0 += a.step;
      a1 += a.step;
      b0 += kAmxTile;
      b1 += kAmxTile;
      ahead.ask();
    }
    return;
  }
  for (int64_t s = 0; s < steps; ++s) {
    _tile_loadd(4, a0, row);
    _tile_loadd(6, b0, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1, row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a0 += a.step;
    a1 += a.step;
    b0 += kAmxTile;
    b1 += kAmxTile;
    ahead.ask();
  }
}

ATOLL_AMX inline __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1U << n) - 1);
}
ATOLL_AMX inline __mmask32 first_halves(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : n <= 0 ? 0 : (__mmask32{1} << n) - 1;
}

/// c of one block, on its way between tiles and memory.
struct Room {
  alignas(64) float c[kAmxBlock * kAmxBlock];
};

ATOLL_AMX inline void load_tiles(const float* c) {
  asm volatile("" ::: "memory");  // GCC 12 does not know that loading a tile reads memory
  constexpr std::size_t kRow = kAmxBlock * sizeof(float);
  _tile_loadd(0, c, kRow);
  _tile_loadd(1, c + kAmxRows, kRow);
  _tile_loadd(2, c + kAmxRows * kAmxBlock, kRow);
  _tile_loadd(3, c + kAmxRows * kAmxBlock + kAmxRows, kRow);
}

ATOLL_AMX inline void store_tiles(float* c) {
  constexpr std::size_t kRow = kAmxBlock * sizeof(float);
  _tile_stored(0, c, kRow);
  _tile_stored(1, c + kAmxRows, kRow);
  _tile_stored(2, c + kAmxRows * kAmxBlock, kRow);
  _tile_stored(3, c + kAmxRows * kAmxBlock + kAmxRows, kRow);
}

ATOLL_AMX inline __m512 widened(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/// The block at (row, col) of c leaves the tiles.
ATOLL_AMX inline void finish(const AmxProduct& p, int64_t row, int64_t col, Room& room) {
  store_tiles(room.c);
  const int64_t rows = std::min(kAmxBlock, p.rows - row);
  const int64_t cols = p.cols - col;
  const __mmask16 left = first_lanes(cols), right = first_lanes(cols - 16);
  __m512 bias0 = _mm512_setzero_ps(), bias1 = _mm512_setzero_ps();
  if (p.bias != nullptr) {
    bias0 = _mm512_maskz_loadu_ps(left, p.bias + col);
    bias1 = _mm512_maskz_loadu_ps(right, p.bias + col + 16);
  }
  const int64_t at = row * p.ldc + col;
  if (p.narrow == nullptr) {
    float* to = p.c + at;
    for (int64_t i = 0; i < rows; ++i, to += p.ldc) {
      __m512 c0 = _mm512_add_ps(_mm512_load_ps(room.c + i * kAmxBlock), bias0);
      __m512 c1 = _mm512_add_ps(_mm512_load_ps(room.c + i * kAmxBlock + 16), bias1);
      if (p.add) {
        c0 = _mm512_add_ps(_mm512_maskz_loadu_ps(left, to), c0);
        c1 = _mm512_add_ps(_mm512_maskz_loadu_ps(right, to + 16), c1);
      }
      _mm512_mask_storeu_ps(to, left, c0);
      _mm512_mask_storeu_ps(to + 16, right, c1);
    }
    return;
  }
  const __mmask32 stored = first_halves(cols);
  Bf16* to = p.narrow + at;
  for (int64_t i = 0; i < rows; ++i, to += p.ldc) {
    __m512 c0 = _mm512_add_ps(_mm512_load_ps(room.c + i * kAmxBlock), bias0);
    __m512 c1 = _mm512_add_ps(_mm512_load_ps(room.c + i * kAmxBlock + 16), bias1);
    if (p.add) {
      const __m512i before = _mm512_maskz_loadu_epi16(stored, to);
      c0 = _mm512_add_ps(widened(_mm512_castsi512_si256(before)), c0);
      c1 = _mm512_add_ps(widened(_mm512_extracti64x4_epi64(before, 1)), c1);
    }
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(c1, c0));
    _mm512_mask_storeu_epi16(to, stored, both);
  }
}

ATOLL_AMX inline void multiply_block(const AmxProduct& p, int64_t row, int64_t col, Room& room,
                                     Asking& ahead) {
  const AmxLeft& a = p.a;
  const Bf16* const b = p.b + col / kAmxRows * p.b_columns;
  const RightTiles right = {b, b + p.b_columns};
  const int64_t tile = row / kAmxRows;
  const int64_t halves = a.low != 0 ? 2 : 1;
  float* const partial = p.partial + col / kAmxBlock * p.partial_columns + row * kAmxBlock;
  if (p.is_first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    load_tiles(partial);
  }
  if (row + kAmxBlock > p.rows && a.last_rows != nullptr) {
    const int64_t next = p.steps * halves * kAmxTile;
    add_steps({a.last_rows, a.last_rows + next, 64, halves * kAmxTile, a.low != 0 ? kAmxTile : 0},
              right, p.steps, ahead);
  } else {
    const int64_t in_place = p.steps - (a.last_step != nullptr ? 1 : 0);
    const Bf16* const first = a.data + tile * a.tile;
    add_steps({first, first + a.tile, a.row_bytes, a.step, a.low}, right, in_place, ahead);
    if (a.last_step != nullptr) {
      const Bf16* const last = a.last_step + tile * halves * kAmxTile;
      add_steps({last, last + halves * kAmxTile, 64, 0, a.low != 0 ? kAmxTile : 0},
                {right.first + in_place * kAmxTile, right.second + in_place * kAmxTile}, 1, ahead);
    }
  }
  if (!p.is_last) return store_tiles(partial);
  finish(p, row, col, room);
}

/// 16 rows of up to 32 terms become 16 rows of pairs, at `to`.
ATOLL_AMX inline void turn_rows(AmxSource from, int64_t rows, int64_t terms, Bf16* to) {
  __m512i r[16];
  const __mmask32 mask = first_halves(terms);
  for (int i = 0; i < 16; ++i) {
    const Bf16* const at = from.data + i * from.stride;
    __builtin_prefetch(at + 16 * from.stride, 0, 3);
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, at) : _mm512_setzero_si512();
  }
  transpose(r);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * kAmxTerms, r[i]);
}

/// Rows k and k + 1 of 32 columns, as pairs: columns 0 to 3, 8 to 11, 16 to 19, 24 to 27 in
/// `low`, the others in `high`.
struct Pairs {
  __m512i low, high;
};
ATOLL_AMX inline Pairs pair_rows(AmxSource from, int64_t terms, __mmask32 mask) {
  const __m512i even =
      terms > 0 ? _mm512_maskz_loadu_epi16(mask, from.data) : _mm512_setzero_si512();
  const __m512i odd =
      terms > 1 ? _mm512_maskz_loadu_epi16(mask, from.data + from.stride) : _mm512_setzero_si512();
  return {_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)};
}

// What packing asks for beforehand: rows that lie far apart are in no stream the CPU would follow.
constexpr int64_t kRowsAhead = 64;

/// 32 columns of up to 32 terms become two tiles of 16 rows, `tile` elements apart.
ATOLL_AMX inline void turn_columns(AmxSource from, int64_t columns, int64_t terms, int64_t tile,
                                   Bf16* to) {
  const __mmask32 mask = first_halves(columns);
  __m512i low[16], high[16];
  for (int i = 0; i < 16; ++i) {
    const Bf16* const at = from.data + 2 * i * from.stride;
    __builtin_prefetch(at + kRowsAhead * from.stride, 0, 3);
    __builtin_prefetch(at + (kRowsAhead + 1) * from.stride, 0, 3);
    const Pairs pairs = pair_rows({at, from.stride}, terms - 2 * i, mask);
    low[i] = pairs.low;
    high[i] = pairs.high;
  }
  transpose(low);
  transpose(high);
  for (int i = 0; i < 16; ++i) {
    const int row = 8 * (i / 4) + i % 4;  // that column i of `low` is, of the 32
    Bf16* const at = to + row / 16 * tile + row % 16 * kAmxTerms;
    _mm512_store_si512(at, low[i]);
    _mm512_store_si512(at + 4 * kAmxTerms, high[i]);
  }
}

// Columns 0 to 15, and 16 to 31, out of both halves of Pairs, by 64 bits.
alignas(64) constexpr int64_t kFirstColumns[8] = {0, 1, 8, 9, 2, 3, 10, 11};
alignas(64) constexpr int64_t kLastColumns[8] = {4, 5, 12, 13, 6, 7, 14, 15};

}  // namespace

AmxScope::AmxScope() {
  set_up_tiles();
}
AmxScope::~AmxScope() {
  release_tiles();
}

ATOLL_AMX void amx_multiply(const AmxProduct& product) {
  Room room;
  const int64_t steps =
      amx_padded(product.rows) / kAmxBlock * amx_padded(product.cols) / kAmxBlock * product.steps;
  Asking ahead = {to_ask(product.ahead[0], steps), to_ask(product.ahead[1], steps)};
  for (int64_t col = 0; col < product.cols; col += kAmxBlock) {
    for (int64_t row = 0; row < product.rows; row += kAmxBlock) {
      multiply_block(product, row, col, room, ahead);
    }
  }
}

ATOLL_AMX void amx_pack_right(AmxSource from, int64_t terms, int64_t cols, int64_t columns,
                              Bf16* to) {
  const __m512i first = _mm512_load_si512(kFirstColumns), last = _mm512_load_si512(kLastColumns);
  for (int64_t k = 0; k < amx_steps(terms) * kAmxTerms; k += 2) {
    Bf16* row = to + k / kAmxTerms * kAmxTile + k % kAmxTerms * kAmxRows;
    for (int64_t n = 0; n < cols; n += kAmxBlock, row += 2 * columns) {
      const Bf16* const at = from.data + k * from.stride + n;
      __builtin_prefetch(at + kRowsAhead * from.stride, 0, 3);
      __builtin_prefetch(at + (kRowsAhead + 1) * from.stride, 0, 3);
      const Pairs pairs = pair_rows({at, from.stride}, terms - k, first_halves(cols - n));
      _mm512_store_si512(row, _mm512_permutex2var_epi64(pairs.low, first, pairs.high));
      _mm512_store_si512(row + columns, _mm512_permutex2var_epi64(pairs.low, last, pairs.high));
    }
  }
}

ATOLL_AMX void amx_pack_right_transposed(AmxSource from, int64_t terms, int64_t cols,
                                         int64_t columns, Bf16* to) {
  for (int64_t n = 0; n < amx_padded(cols); n += kAmxRows, to += columns) {
    for (int64_t k = 0; k < terms; k += kAmxTerms) {
      turn_rows({from.data + n * from.stride + k, from.stride}, cols - n, terms - k,
                to + k * kAmxRows);
    }
  }
}

ATOLL_AMX void amx_pack_left_transposed(AmxSource from, int64_t terms, int64_t rows, int64_t tile,
                                        bool two_terms, Bf16* to) {
  const int64_t halves = two_terms ? 2 : 1;
  for (int64_t m = 0; m < rows; m += kAmxBlock, to += 2 * tile) {
    for (int64_t half = 0; half < halves; ++half) {
      const AmxSource columns = {from.data + m * halves + half * kAmxBlock, from.stride};
      for (int64_t k = 0; k < terms; k += kAmxTerms) {
        turn_columns({columns.data + k * from.stride, from.stride}, rows - m, terms - k, tile,
                     to + k * kAmxRows * halves + half * kAmxTile);
      }
    }
  }
}

ATOLL_AMX void amx_pack_left(AmxSource from, int64_t terms, int64_t rows, int64_t tile,
                             bool two_terms, Bf16* to) {
  // Stored rows of two terms are padded by zeros.
  const int64_t stored = two_terms ? 2 * kAmxTerms * amx_steps(terms) : terms;
  for (int64_t m = 0; m < amx_padded(rows); ++m) {
    Bf16* const row = to + m / kAmxRows * tile + m % kAmxRows * kAmxTerms;
    for (int64_t k = 0; k < stored; k += kAmxTerms) {
      const __m512i values = m < rows ? _mm512_maskz_loadu_epi16(first_halves(stored - k),
                                                                 from.data + m * from.stride + k)
                                      : _mm512_setzero_si512();
      _mm512_store_si512(row + k * kAmxRows, values);
    }
  }
}

ATOLL_AMX double amx_tile_loop(int64_t rounds) {
  const simd::AmxTiles tiles;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return static_cast<double>(rounds) * 4 * 2 * kAmxRows * kAmxRows * kAmxTerms;
}

}  // namespace atl::ops::cpu
