// GCC 12 warns of its own intrinsics, whose unused operand is undefined (GCC's bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "atoll/ops/int8/cpu_tiles.h"

#include <algorithm>
#include <cstring>

#include "atoll/ops/amx/transpose.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/simd/amx/tiles.h"

namespace atl::ops::cpu {

namespace {

using std::int64_t;

constexpr int64_t kTileBytes = kInt8Rows * kInt8Group;
static_assert(kInt8Group == simd::kAmxRowBytes, "a tile is a group of 16 rows");

/// A group of 16 rows of weights, `stride` bytes apart.
struct Group {
  const std::int8_t* at;
  int64_t stride;
};

/// The last group of rows that are no whole groups, padded by zeros.
struct LastGroup {
  alignas(64) std::int8_t values[kTileBytes];

  void fill(const Int8Slab& w) {
    const int64_t begin = w.k / kInt8Group * kInt8Group;
    const auto bytes = static_cast<std::size_t>(w.k - begin);
    std::memset(values, 0, sizeof values);
    for (int64_t i = 0; i < kInt8Rows; ++i) {
      std::memcpy(values + i * kInt8Group, w.values + i * w.k + begin, bytes);
    }
  }
};

ATOLL_VNNI inline __mmask16 lanes_from(int64_t first) {
  return static_cast<__mmask16>(0xffffU << first);
}

/// 16 x 16 sums, lane j of vector i being row j of x and row i of the weights.
ATOLL_AMX inline void store_block(const __m512 (&sums)[16], const RoundedRows& x, const Int8Slab& w,
                                  int64_t row) {
  __m512i turned[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) turned[i] = _mm512_castps_si512(sums[i]);
  transpose(turned);
  const __m512 bias = w.bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(w.bias);
  const __mmask16 taken = lanes_from(w.skip);
  const int64_t rows = std::min(kInt8Rows, x.count - row);
  for (int64_t i = 0; i < rows; ++i) {
    _mm512_mask_storeu_ps(w.y + (row + i) * w.ldy, taken,
                          _mm512_add_ps(_mm512_castsi512_ps(turned[i]), bias));
  }
}

/// 16 rows of x and of weights: what a group of both is, and its integer sums.
struct Block {
  const RoundedRows& x;
  const Int8Slab& w;
  const std::int8_t* values;  // of x, packed
  const float* scales;
  const std::int8_t* last;        // the last group of w
  bool asks_ahead;                // for the 16 rows of weights that follow
  std::int32_t (*dots)[16 * 16];  // four of them

  Group group(int64_t g) const {
    if (g == w.k / kInt8Group) return {last, kInt8Group};
    return {w.values + g * kInt8Group, w.k};
  }
  const std::int8_t* of_x(int64_t g) const { return values + g * kTileBytes; }

  ATOLL_AMX inline void ask_ahead(int64_t g) const {
    if (!asks_ahead) return;
    const std::int8_t* const next = w.values + kInt8Rows * w.k + g * kInt8Group;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) __builtin_prefetch(next + i * w.k, 0, 2);
  }

  /// dots[0] of group g.
  ATOLL_AMX inline void multiply(int64_t g) {
    const Group w0 = group(g);
    ask_ahead(g);
    _tile_zero(0);
    _tile_loadd(4, w0.at, static_cast<std::size_t>(w0.stride));
    _tile_loadd(6, of_x(g), simd::kAmxRowBytes);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(0, dots[0], simd::kAmxRowBytes);
  }

  /// dots of groups g to g + 3, all whole. What follows a tile's way to memory waits for it, so
  /// four go together.
  ATOLL_AMX inline void multiply_four(int64_t g) {
    const std::int8_t* const at = w.values + g * kInt8Group;
    const auto stride = static_cast<std::size_t>(w.k);
    for (int i = 0; i < 4; ++i) ask_ahead(g + i);
    _tile_zero(0);
    _tile_loadd(4, at, stride);
    _tile_loadd(6, of_x(g), simd::kAmxRowBytes);
    _tile_dpbssd(0, 4, 6);
    _tile_zero(1);
    _tile_loadd(5, at + kInt8Group, stride);
    _tile_loadd(7, of_x(g + 1), simd::kAmxRowBytes);
    _tile_dpbssd(1, 5, 7);
    _tile_zero(2);
    _tile_loadd(4, at + 2 * kInt8Group, stride);
    _tile_loadd(6, of_x(g + 2), simd::kAmxRowBytes);
    _tile_dpbssd(2, 4, 6);
    _tile_zero(3);
    _tile_loadd(5, at + 3 * kInt8Group, stride);
    _tile_loadd(7, of_x(g + 3), simd::kAmxRowBytes);
    _tile_dpbssd(3, 5, 7);
    _tile_stored(0, dots[0], simd::kAmxRowBytes);
    _tile_stored(1, dots[1], simd::kAmxRowBytes);
    _tile_stored(2, dots[2], simd::kAmxRowBytes);
    _tile_stored(3, dots[3], simd::kAmxRowBytes);
  }
};

/// Adds dots[at] of group g, times both factors.
[[gnu::always_inline]] ATOLL_AMX inline void add_dots(const Block& block, int at, int64_t g,
                                                      __m512 (&sums)[16]) {
  const std::int32_t* const dots = block.dots[at];
  const float* const scales = block.w.scales + g;
  const int64_t groups = block.x.groups;
  const __m512 factors = _mm512_load_ps(block.scales + g * kInt8Rows);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots + 16 * i));
    sums[i] =
        _mm512_fmadd_ps(_mm512_mul_ps(dot, factors), _mm512_set1_ps(scales[i * groups]), sums[i]);
  }
}

}  // namespace

// Weights are the left operand: their rows are tiles as they lie.
ATOLL_AMX void int8_slab_amx(const RoundedRows& x, const Int8Slab& w) {
  const int64_t whole = w.k / kInt8Group;
  LastGroup last;
  if (whole < x.groups) last.fill(w);
  asm volatile("" ::: "memory");  // GCC 12 does not know that loading a tile reads memory
  alignas(64) std::int32_t dots[4][16 * 16];
  for (int64_t row = 0; row < x.count; row += kInt8Rows) {
    const int64_t at = row / kInt8Rows * x.groups;
    Block block = {.x = x,
                   .w = w,
                   .values = x.packed + at * kTileBytes,
                   .scales = x.scales + at * kInt8Rows,
                   .last = last.values,
                   .asks_ahead = row == 0,
                   .dots = dots};
    __m512 sums[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sums[i] = _mm512_setzero_ps();
    int64_t g = 0;
    for (; g + 4 <= whole; g += 4) {
      block.multiply_four(g);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) add_dots(block, i, g + i, sums);
    }
    for (; g < x.groups; ++g) {
      block.multiply(g);
      add_dots(block, 0, g, sums);
    }
    store_block(sums, x, w, row);
  }
}

namespace {

// Rows of x whose sums are kept beside the weights that all of them read.
constexpr int64_t kMostRows = 64;

/// Sums of kRows rows of x with 16 rows of weights: lanes are rows of weights. `quads` has them
/// with 128 added, four terms a lane; `x` one row's terms 0 to 3.
template <int kRows>
ATOLL_VNNI inline void add_group(const __m512i (&quads)[16], const std::int8_t* x,
                                 const std::int32_t* x_sums, const float* x_scales, __m512 scales,
                                 float* sums) {
  constexpr int kParts = 8 / kRows;  // as many sums as hide the latency of one
  __m512i dot[kRows][kParts];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    dot[r][0] = _mm512_set1_epi32(-128 * x_sums[r]);
#pragma GCC unroll 8
    for (int p = 1; p < kParts; ++p) dot[r][p] = _mm512_setzero_si512();
  }
#pragma GCC unroll 16
  for (int q = 0; q < 16; ++q) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      std::int32_t terms = 0;
      std::memcpy(&terms, x + q * kInt8Group + 4 * r, sizeof terms);
      __m512i& part = dot[r][q % kParts];
      part = _mm512_dpbusd_epi32(part, quads[q], _mm512_set1_epi32(terms));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    __m512i sum = dot[r][0];
#pragma GCC unroll 8
    for (int p = 1; p < kParts; ++p) sum = _mm512_add_epi32(sum, dot[r][p]);
    const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(x_scales[r]));
    float* const to = sums + r * kInt8Rows;
    _mm512_store_ps(to, _mm512_fmadd_ps(scaled, scales, _mm512_load_ps(to)));
  }
}

/// Rows [row, row + rows) of x.
ATOLL_VNNI inline void add_rows(const RoundedRows& x, const Int8Slab& w, const LastGroup& last,
                                int64_t row, int64_t rows) {
  alignas(64) float sums[kMostRows * kInt8Rows];
  std::memset(sums, 0, static_cast<std::size_t>(rows * kInt8Rows) * sizeof(float));
  const auto groups = static_cast<int>(x.groups);
  const __m512i index =
      _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32(groups));
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int64_t g = 0; g < x.groups; ++g) {
    const bool is_last = g == w.k / kInt8Group;
    const std::int8_t* const at = is_last ? last.values : w.values + g * kInt8Group;
    const int64_t stride = is_last ? kInt8Group : w.k;
    __m512i quads[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (row == 0) __builtin_prefetch(at + i * stride + kInt8Rows * w.k, 0, 2);
      quads[i] = _mm512_xor_si512(_mm512_loadu_si512(at + i * stride), flip);
    }
    transpose(quads);
    const __m512 scales = _mm512_i32gather_ps(index, w.scales + g, sizeof(float));
    for (int64_t r = 0; r < rows;) {
      const int64_t block = ((row + r) / kInt8Rows * x.groups + g) * kInt8Rows;
      const int64_t in_block = (row + r) % kInt8Rows;
      const std::int8_t* const values = x.packed + block * kInt8Group + 4 * in_block;
      const int64_t of_row = block + in_block;
      if (r + 4 <= rows) {
        add_group<4>(quads, values, x.sums + of_row, x.scales + of_row, scales,
                     sums + r * kInt8Rows);
        r += 4;
      } else {
        add_group<1>(quads, values, x.sums + of_row, x.scales + of_row, scales,
                     sums + r * kInt8Rows);
        r += 1;
      }
    }
  }
  const __m512 bias = w.bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(w.bias);
  const __mmask16 taken = lanes_from(w.skip);
  for (int64_t r = 0; r < rows; ++r) {
    _mm512_mask_storeu_ps(w.y + (row + r) * w.ldy, taken,
                          _mm512_add_ps(_mm512_load_ps(sums + r * kInt8Rows), bias));
  }
}

}  // namespace

ATOLL_VNNI void int8_slab_vnni(const RoundedRows& x, const Int8Slab& w) {
  LastGroup last;
  if (w.k / kInt8Group < x.groups) last.fill(w);
  for (int64_t row = 0; row < x.count; row += kMostRows) {
    add_rows(x, w, last, row, std::min(kMostRows, x.count - row));
  }
}

ATOLL_VNNI void int8_pack_rows(const std::int8_t* rows, int64_t stride, int64_t groups,
                               std::int8_t* to) {
  for (int64_t g = 0; g < groups; ++g) {
    __m512i quads[16];
    for (int i = 0; i < 16; ++i) {
      quads[i] = _mm512_loadu_si512(rows + i * stride + g * kInt8Group);
    }
    transpose(quads);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + g * kTileBytes + i * kInt8Group, quads[i]);
  }
}

}  // namespace atl::ops::cpu
