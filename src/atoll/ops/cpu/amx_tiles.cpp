// GCC 12 warns of its own intrinsics, whose unused operand is undefined (GCC's bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "atoll/ops/cpu/amx_tiles.h"

#include <algorithm>
#include <cstring>

#include "atoll/simd/amx.h"

#if defined(__x86_64__)

namespace atl::ops::cpu {

namespace {

using std::int64_t;

ATOLL_AMX inline void ask(AmxAhead& ahead) {
  if (ahead.rows == 0) return;
  __builtin_prefetch(ahead.at + ahead.column, 0, 2);
  ahead.column += 64;
  if (ahead.column < ahead.row_bytes) return;
  ahead.column = 0;
  ahead.at += ahead.stride;
  --ahead.rows;
}

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
                                AmxAhead& ahead) {
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
      ask(ahead);
      ask(ahead);
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
    ask(ahead);
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

ATOLL_AMX inline void load_tiles(const float* c, int64_t ld) {
  const auto row = static_cast<std::size_t>(ld) * sizeof(float);
  _tile_loadd(0, c, row);
  _tile_loadd(1, c + kAmxRows, row);
  _tile_loadd(2, c + kAmxRows * ld, row);
  _tile_loadd(3, c + kAmxRows * ld + kAmxRows, row);
}

ATOLL_AMX inline void store_tiles(float* c, int64_t ld) {
  const auto row = static_cast<std::size_t>(ld) * sizeof(float);
  _tile_stored(0, c, row);
  _tile_stored(1, c + kAmxRows, row);
  _tile_stored(2, c + kAmxRows * ld, row);
  _tile_stored(3, c + kAmxRows * ld + kAmxRows, row);
}

ATOLL_AMX inline void take_sums(const float* c, int64_t ld, int64_t rows, int64_t cols,
                                Room& room) {
  const __mmask16 left = first_lanes(cols), right = first_lanes(cols - 16);
  std::memset(room.c, 0, sizeof(room.c));
  for (int64_t i = 0; i < rows; ++i) {
    _mm512_store_ps(room.c + i * kAmxBlock, _mm512_maskz_loadu_ps(left, c + i * ld));
    _mm512_store_ps(room.c + i * kAmxBlock + 16, _mm512_maskz_loadu_ps(right, c + i * ld + 16));
  }
}

/// The block at (row, col) of c leaves the tiles.
ATOLL_AMX inline void finish(const AmxProduct& p, int64_t row, int64_t col, Room& room) {
  const int64_t rows = std::min(kAmxBlock, p.rows - row);
  const int64_t cols = std::min(kAmxBlock, p.cols - col);
  float* const sums = p.sums + row * p.ld_sums + col;
  if (p.narrow == nullptr && p.bias == nullptr && rows == kAmxBlock && cols == kAmxBlock) {
    return store_tiles(sums, p.ld_sums);
  }
  store_tiles(room.c, kAmxBlock);
  const __mmask16 left = first_lanes(cols), right = first_lanes(cols - 16);
  __m512 bias0 = _mm512_setzero_ps(), bias1 = _mm512_setzero_ps();
  if (p.bias != nullptr) {
    bias0 = _mm512_maskz_loadu_ps(left, p.bias + col);
    bias1 = _mm512_maskz_loadu_ps(right, p.bias + col + 16);
  }
  if (p.narrow == nullptr) {
    for (int64_t i = 0; i < rows; ++i) {
      const float* const from = room.c + i * kAmxBlock;
      float* const to = sums + i * p.ld_sums;
      _mm512_mask_storeu_ps(to, left, _mm512_add_ps(_mm512_load_ps(from), bias0));
      _mm512_mask_storeu_ps(to + 16, right, _mm512_add_ps(_mm512_load_ps(from + 16), bias1));
    }
    return;
  }
  const __mmask32 stored = first_halves(cols);
  Bf16* to = p.narrow + row * p.ld_narrow + col;
  for (int64_t i = 0; i < rows; ++i, to += p.ld_narrow) {
    const float* const from = room.c + i * kAmxBlock;
    const __m512 c0 = _mm512_add_ps(_mm512_load_ps(from), bias0);
    const __m512 c1 = _mm512_add_ps(_mm512_load_ps(from + 16), bias1);
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(c1, c0));
    _mm512_mask_storeu_epi16(to, stored, both);
  }
}

ATOLL_AMX inline void multiply_block(AmxProduct& p, int64_t row, int64_t col, Room& room) {
  const AmxLeft& a = p.a;
  const Bf16* const b = p.b + col / kAmxRows * p.b_columns;
  const RightTiles right = {b, b + p.b_columns};
  const int64_t tile = row / kAmxRows;
  const bool is_last = row + kAmxBlock > p.rows && a.last_rows != nullptr;
  const int64_t halves = a.low != 0 ? 2 : 1;
  if (!p.add) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else if (row + kAmxBlock <= p.rows && col + kAmxBlock <= p.cols) {
    load_tiles(p.sums + row * p.ld_sums + col, p.ld_sums);
  } else {
    take_sums(p.sums + row * p.ld_sums + col, p.ld_sums, p.rows - row, p.cols - col, room);
    load_tiles(room.c, kAmxBlock);
  }
  if (is_last) {
    const int64_t next = p.steps * halves * kAmxTile;
    add_steps({a.last_rows, a.last_rows + next, 64, halves * kAmxTile, a.low != 0 ? kAmxTile : 0},
              right, p.steps, p.ahead);
  } else {
    const int64_t in_place = p.steps - (a.last_step != nullptr ? 1 : 0);
    const Bf16* const first = a.data + tile * a.tile;
    add_steps({first, first + a.tile, a.row_bytes, a.step, a.low}, right, in_place, p.ahead);
    if (a.last_step != nullptr) {
      const Bf16* const last = a.last_step + tile * halves * kAmxTile;
      add_steps({last, last + halves * kAmxTile, 64, 0, a.low != 0 ? kAmxTile : 0},
                {right.first + in_place * kAmxTile, right.second + in_place * kAmxTile}, 1,
                p.ahead);
    }
  }
  finish(p, row, col, room);
}

/// A square of 16 x 16 pairs, turned: row i of the result is column i.
ATOLL_AMX inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);      // columns 0, 4, 8, 12 of rows i to i + 3
    t[i + 1] = _mm512_unpackhi_epi64(a, c);  // 1, 5, ...
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);       // columns i, i + 8
    const __m512i b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);       // i + 4, i + 12
    const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

/// 16 rows of up to 32 terms become 16 rows of pairs, at `to`.
ATOLL_AMX inline void turn_rows(AmxSource from, int64_t rows, int64_t terms, Bf16* to) {
  __m512i r[16];
  const __mmask32 mask = first_halves(terms);
  for (int i = 0; i < 16; ++i) {
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from.data + i * from.stride)
                    : _mm512_setzero_si512();
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
  const __m512i odd = terms > 1 ? _mm512_maskz_loadu_epi16(mask, from.data + from.stride)
                                : _mm512_setzero_si512();
  return {_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)};
}

// Columns 0 to 15, and 16 to 31, out of both halves of Pairs, by 64 bits.
alignas(64) constexpr int64_t kFirstColumns[8] = {0, 1, 8, 9, 2, 3, 10, 11};
alignas(64) constexpr int64_t kLastColumns[8] = {4, 5, 12, 13, 6, 7, 14, 15};

}  // namespace

ATOLL_AMX void amx_multiply(AmxProduct product) {
  Room room;
  for (int64_t col = 0; col < product.cols; col += kAmxBlock) {
    for (int64_t row = 0; row < product.rows; row += kAmxBlock) {
      multiply_block(product, row, col, room);
    }
  }
}

ATOLL_AMX void amx_pack_right(AmxSource from, int64_t terms, int64_t cols, int64_t columns,
                              Bf16* to) {
  const __m512i first = _mm512_load_si512(kFirstColumns), last = _mm512_load_si512(kLastColumns);
  for (int64_t k = 0; k < amx_steps(terms) * kAmxTerms; k += 2) {
    Bf16* row = to + k / kAmxTerms * kAmxTile + k % kAmxTerms * kAmxRows;
    for (int64_t n = 0; n < cols; n += kAmxBlock, row += 2 * columns) {
      const Pairs pairs = pair_rows({from.data + k * from.stride + n, from.stride}, terms - k,
                                    first_halves(cols - n));
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
                                        Bf16* to) {
  for (int64_t m = 0; m < rows; m += kAmxBlock, to += 2 * tile) {
    const __mmask32 mask = first_halves(rows - m);
    for (int64_t k = 0; k < terms; k += kAmxTerms) {
      __m512i low[16], high[16];
      for (int i = 0; i < 16; ++i) {
        const Pairs pairs = pair_rows({from.data + (k + 2 * i) * from.stride + m, from.stride},
                                      terms - k - 2 * i, mask);
        low[i] = pairs.low;
        high[i] = pairs.high;
      }
      transpose(low);
      transpose(high);
      Bf16* const at = to + k * kAmxRows;
      for (int i = 0; i < 16; ++i) {
        // Column i of `low` is row 8 (i / 4) + i % 4 of the 32.
        const int row = 8 * (i / 4) + i % 4;
        Bf16* const tile_at = at + row / 16 * tile + row % 16 * kAmxTerms;
        _mm512_store_si512(tile_at, low[i]);
        _mm512_store_si512(tile_at + 4 * kAmxTerms, high[i]);
      }
    }
  }
}

ATOLL_AMX void amx_pack_left(AmxSource from, int64_t terms, int64_t rows, int64_t tile, Bf16* to) {
  for (int64_t m = 0; m < amx_padded(rows); ++m) {
    Bf16* const row = to + m / kAmxRows * tile + m % kAmxRows * kAmxTerms;
    for (int64_t k = 0; k < terms; k += kAmxTerms) {
      const __m512i values =
          m < rows ? _mm512_maskz_loadu_epi16(first_halves(terms - k),
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

#else

#include "atoll/base/check.h"

namespace atl::ops::cpu {

// simd::has_amx() is false here, so that nothing calls these.
void amx_multiply(AmxProduct) {
  ATOLL_CHECK(false, "no AMX here");
}

}  // namespace atl::ops::cpu

#endif
