// The kernel of the tiled product and the packing for it, compiled once per instruction set:
// include this after hwy/highway.h in a file that foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_MATMUL_TILE_INL_H_
#undef ATOLL_OPS_CPU_MATMUL_TILE_INL_H_
#else
#define ATOLL_OPS_CPU_MATMUL_TILE_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "atoll/ops/cpu/lanes-inl.h"
#include "atoll/ops/matmul/cpu_panels.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kTileLanes = hn::MaxLanes(F32());

// A tile of c in registers: kRows rows of kVecs vectors. Terms to a turn of the kernel's loop, and
// rows of a that are read by one pointer: what one address and one distance reach.
template <std::size_t kRowsIn, std::size_t kVecsIn, std::size_t kTermsIn, std::size_t kPointerRows>
struct TileShape {
  static constexpr std::size_t kRows = kRowsIn;
  static constexpr std::size_t kVecs = kVecsIn;
  static constexpr std::size_t kCols = kVecs * kTileLanes;
  static constexpr std::size_t kTerms = kTermsIn;
  static constexpr std::size_t kRowsPerPointer = kPointerRows;
};

// Sums, the vectors of b and one broadcast fill the registers. With 32 of them, of 64 bytes, a tile
// is tall, with fewer bytes of b to a multiply-add, or wide, with fewer loads (decision 0046). With
// 16 a term has but 12 multiply-adds, beside which the loop's own counting tells (decision 0027).
using TallTile =
    std::conditional_t<kTileLanes >= 16, TileShape<14, 2, 1, 14>, TileShape<6, 2, 4, 3>>;
using WideTile = std::conditional_t<kTileLanes >= 16, TileShape<8, 3, 4, 4>, TallTile>;

// What a tile asks for while it is multiplied: a line of each row
// from `from` on, `stride` elements apart, for each kLineFloats of its terms.
struct Ahead {
  const float* from;
  std::size_t stride;
};
constexpr std::size_t kLineFloats = 16;
// Of those lines, asked for in a turn: in a line's terms, (at least) a tile's rows.
template <class Shape>
constexpr std::size_t kLinesAtOnce = (Shape::kRows * Shape::kTerms + kLineFloats - 1) / kLineFloats;

// sum += a b over kTerms terms, whose first are at `a` and b. The pointers of a stay as they are.
template <class Shape, std::size_t kTerms, std::size_t kRows, bool kPacked, std::size_t kPointers>
HWY_INLINE void add_terms(const float* (&a)[kPointers], std::size_t a_row, const float* b,
                          Vf (&sum)[kRows][Shape::kVecs]) {
  const F32 d;
#pragma GCC unroll 4
  for (std::size_t k = 0; k < kTerms; ++k, b += Shape::kCols) {
    Vf right[Shape::kVecs];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < Shape::kVecs; ++v) right[v] = hn::Load(d, b + v * kTileLanes);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kRows; ++i) {
      const Vf left = hn::Set(
          d, kPacked ? a[0][k * Shape::kRows + i]
                     : a[i / Shape::kRowsPerPointer][k + i % Shape::kRowsPerPointer * a_row]);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < Shape::kVecs; ++v) {
        sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
      }
    }
    // What the next term reads is not to be read before: a sum would have to leave its register.
    if (kTerms > 1) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

// c (kRows, a tile's columns) = start + a b. start_stride 0: each row begins with the same. c and
// what comes `ahead` are fetched a line at a time: all at once, those of b would wait for them.
template <class Shape, std::size_t kRows, bool kPacked>
HWY_NOINLINE void multiply_tile(std::size_t num_k, const float* a, std::size_t a_row,
                                const float* b, const float* start, std::size_t start_stride,
                                float* c, std::size_t ldc, Ahead ahead) {
  const F32 d;
  Vf sum[kRows][Shape::kVecs];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < Shape::kVecs; ++v) sum[i][v] = hn::Zero(d);
  }
  constexpr std::size_t kPointers =
      kPacked ? 1 : (kRows + Shape::kRowsPerPointer - 1) / Shape::kRowsPerPointer;
  const float* left[kPointers];
  for (std::size_t p = 0; p < kPointers; ++p) left[p] = a + p * Shape::kRowsPerPointer * a_row;
  const auto advance = [&](std::size_t terms) HWY_ATTR {
#pragma GCC unroll 4
    for (std::size_t p = 0; p < kPointers; ++p) {
      left[p] += terms * (kPacked ? Shape::kRows : 1);
      if (kPointers > 1) asm("" : "+r"(left[p]));  // a pointer, not the first one and a distance
    }
    b += terms * Shape::kCols;
  };
  for (std::size_t k = 0; k < num_k;) {
    if (k < kRows * kLineFloats) {
      const float* row = c + k / kLineFloats * ldc;
      for (std::size_t v = 0; v + 1 < Shape::kVecs; ++v) hwy::Prefetch(row + v * kTileLanes);
      hwy::Prefetch(row + Shape::kCols - 1);
    }
    const float* line = ahead.from + k;
    const std::size_t end = std::min(num_k, k + kLineFloats);
    for (; k + Shape::kTerms <= end; k += Shape::kTerms) {
      for (std::size_t i = 0; i < kLinesAtOnce<Shape>; ++i, line += ahead.stride) {
        __builtin_prefetch(line, 0, 2);  // to the second-level cache
      }
      add_terms<Shape, Shape::kTerms, kRows, kPacked>(left, a_row, b, sum);
      advance(Shape::kTerms);
    }
    for (; k < end; ++k) {
      add_terms<Shape, 1, kRows, kPacked>(left, a_row, b, sum);
      advance(1);
    }
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < Shape::kVecs; ++v) {
      Vf value = sum[i][v];
      if (start != nullptr) {
        value = hn::Add(value, hn::LoadU(d, start + i * start_stride + v * kTileLanes));
      }
      hn::StoreU(value, d, c + i * ldc + v * kTileLanes);
    }
  }
}

// multiply_tile of any number of rows up to a tile's: whole, or in halves.
template <class Shape, bool kPacked>
HWY_INLINE void multiply_rows(std::size_t rows, std::size_t num_k, const float* a,
                              std::size_t a_row, const float* b, const float* start,
                              std::size_t start_stride, float* c, std::size_t ldc, Ahead ahead) {
  if (rows == Shape::kRows) {
    multiply_tile<Shape, Shape::kRows, kPacked>(num_k, a, a_row, b, start, start_stride, c, ldc,
                                                ahead);
    return;
  }
  const auto part = [&]<std::size_t kRows>() HWY_ATTR {
    if constexpr (kRows >= Shape::kRows) return;
    if ((rows & kRows) == 0) return;
    multiply_tile<Shape, kRows, kPacked>(num_k, a, a_row, b, start, start_stride, c, ldc, ahead);
    a += kRows * (kPacked ? 1 : a_row);
    c += kRows * ldc;
    if (start != nullptr) start += kRows * start_stride;
  };
  part.template operator()<8>();
  part.template operator()<4>();
  part.template operator()<2>();
  part.template operator()<1>();
}

// A tile that c holds only `cols` columns of: computed in a whole one, and copied.
template <class Shape, bool kPacked>
HWY_NOINLINE void multiply_narrow(std::size_t rows, std::size_t cols, std::size_t num_k,
                                  const float* a, std::size_t a_row, const float* b,
                                  const float* start, std::size_t start_stride, float* c,
                                  std::size_t ldc) {
  HWY_ALIGN float whole[Shape::kRows * Shape::kCols] = {};
  if (start != nullptr) {
    for (std::size_t i = 0; i < rows; ++i) {
      std::memcpy(whole + i * Shape::kCols, start + i * start_stride, cols * sizeof(float));
    }
  }
  multiply_rows<Shape, kPacked>(rows, num_k, a, a_row, b, start == nullptr ? nullptr : whole,
                                Shape::kCols, whole, Shape::kCols, {a, 0});
  for (std::size_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * ldc, whole + i * Shape::kCols, cols * sizeof(float));
  }
}

// Rows of a this far apart, in elements, all lie in the same few places of the first-level cache:
// what is fetched of one tile would take the place of another's.
constexpr std::size_t kClashingRows = 1024;

template <class Shape, bool kPacked>
HWY_INLINE void multiply_panels_of(const PanelProduct& p) {
  const auto rows = static_cast<std::size_t>(p.rows);
  const auto cols = static_cast<std::size_t>(p.cols);
  const auto num_k = static_cast<std::size_t>(p.num_k);
  const auto ldc = static_cast<std::size_t>(p.ldc);
  const auto a_row = static_cast<std::size_t>(p.a_row);
  const std::size_t a_tile = kPacked ? static_cast<std::size_t>(p.a_tile) : Shape::kRows * a_row;
  const bool looks_ahead = !kPacked && a_row % kClashingRows != 0;
  for (std::size_t n = 0; n < cols; n += Shape::kCols) {
    const float* b = p.b + n * num_k;
    const std::size_t width = std::min(Shape::kCols, cols - n);
    for (std::size_t m = 0; m < rows; m += Shape::kRows) {
      const std::size_t height = std::min(Shape::kRows, rows - m);
      const float* a = p.a + m / Shape::kRows * a_tile;
      float* c = p.c + m * ldc + n;
      const float* start = p.add ? c : (p.start == nullptr ? nullptr : p.start + n);
      const std::size_t start_stride = p.add ? ldc : 0;
      if (width < Shape::kCols) {
        multiply_narrow<Shape, kPacked>(height, width, num_k, a, a_row, b, start, start_stride, c,
                                        ldc);
        continue;
      }
      Ahead ahead = {a, 0};  // nothing: what is being read
      if (n == 0 && looks_ahead) {
        if (m + Shape::kRows < rows) {
          ahead = {a + a_tile, a_row};
        } else if (p.next_a != nullptr) {
          ahead = {p.next_a, a_row};
        }
      }
      multiply_rows<Shape, kPacked>(height, num_k, a, a_row, b, start, start_stride, c, ldc, ahead);
    }
  }
}

template <class Shape>
HWY_INLINE void multiply_panels(const PanelProduct& p) {
  p.a_row == 0 ? multiply_panels_of<Shape, true>(p) : multiply_panels_of<Shape, false>(p);
}

#if HWY_TARGET != HWY_SCALAR
// Block i (of four elements) of the vector: those at row 4 i from p on.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* p, std::size_t stride) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, p + hn::MaxLanes(half) * stride, stride),
                       load_blocks(half, p, stride));
  }
}
#endif

// to[k * Shape::kCols + n] = from[n * stride + k] for a vector's number of n.
template <class Shape>
HWY_INLINE void transpose_lanes(const float* from, std::size_t stride, std::size_t num_k,
                                float* to) {
  std::size_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  const F32 d;
  for (; k + 4 <= num_k; k += 4) {
    const Vf r0 = load_blocks(d, from + k, stride);
    const Vf r1 = load_blocks(d, from + stride + k, stride);
    const Vf r2 = load_blocks(d, from + 2 * stride + k, stride);
    const Vf r3 = load_blocks(d, from + 3 * stride + k, stride);
    const Vf low02 = hn::InterleaveLower(d, r0, r2);
    const Vf low13 = hn::InterleaveLower(d, r1, r3);
    const Vf high02 = hn::InterleaveUpper(d, r0, r2);
    const Vf high13 = hn::InterleaveUpper(d, r1, r3);
    float* out = to + k * Shape::kCols;
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, out);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, out + Shape::kCols);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, out + 2 * Shape::kCols);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, out + 3 * Shape::kCols);
  }
#endif
  for (; k < num_k; ++k) {
    for (std::size_t n = 0; n < kTileLanes; ++n) to[k * Shape::kCols + n] = from[n * stride + k];
  }
}

// One panel whose last columns do not exist: zero there.
template <class Shape>
HWY_INLINE void pack_narrow(const PanelSource& from, std::size_t cols, std::size_t num_k,
                            float* to) {
  const auto stride = static_cast<std::size_t>(from.stride);
  for (std::size_t k = 0; k < num_k; ++k) {
    for (std::size_t n = 0; n < Shape::kCols; ++n) {
      const std::size_t at = from.transposed ? n * stride + k : k * stride + n;
      to[k * Shape::kCols + n] = n < cols ? from.b[at] : 0.0F;
    }
  }
}

template <class Shape>
HWY_INLINE void pack_panels(const PanelSource& from, std::int64_t all_cols, std::int64_t all_k,
                            float* to) {
  const F32 d;
  const auto cols = static_cast<std::size_t>(all_cols);
  const auto num_k = static_cast<std::size_t>(all_k);
  const auto stride = static_cast<std::size_t>(from.stride);
  for (std::size_t n = 0; n < cols; n += Shape::kCols, to += Shape::kCols * num_k) {
    const float* b = from.b + n * (from.transposed ? stride : 1);
    if (cols - n < Shape::kCols) {
      pack_narrow<Shape>({b, from.stride, from.transposed}, cols - n, num_k, to);
    } else if (from.transposed) {
      for (std::size_t v = 0; v < Shape::kVecs; ++v) {
        transpose_lanes<Shape>(b + v * kTileLanes * stride, stride, num_k, to + v * kTileLanes);
      }
    } else {
      for (std::size_t k = 0; k < num_k; ++k) {
        for (std::size_t v = 0; v < Shape::kVecs; ++v) {
          hn::StoreU(hn::LoadU(d, b + k * stride + v * kTileLanes), d,
                     to + k * Shape::kCols + v * kTileLanes);
        }
      }
    }
  }
}

// to[0, Shape::kRows) = from[0, Shape::kRows); where kMore, as many as a vector holds may be
// copied.
template <class Shape, bool kMore>
HWY_INLINE void copy_tile_rows(const float* from, float* to) {
  if constexpr (kMore && Shape::kRows <= kTileLanes) {
    const F32 d;
    hn::StoreU(hn::LoadU(d, from), d, to);
  } else {
    std::memcpy(to, from, Shape::kRows * sizeof(float));
  }
}

template <class Shape>
HWY_INLINE void pack_tiles(const float* a, std::int64_t stride, std::int64_t rows,
                           std::int64_t num_k, std::int64_t tile_stride, float* to) {
  const auto tile = static_cast<std::int64_t>(Shape::kRows);
  const std::int64_t whole = rows / tile;
  const auto rest = static_cast<std::size_t>(rows - whole * tile);
  for (std::int64_t k = 0; k < num_k; ++k) {
    const float* from = a + k * stride;
    float* out = to + k * tile;
    if (k + 1 < num_k) {  // the next k overwrites what is copied beyond a tile's rows
      for (std::int64_t t = 0; t < whole; ++t, from += tile, out += tile_stride) {
        copy_tile_rows<Shape, true>(from, out);
      }
    } else {
      for (std::int64_t t = 0; t < whole; ++t, from += tile, out += tile_stride) {
        copy_tile_rows<Shape, false>(from, out);
      }
    }
    std::memcpy(out, from, rest * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_MATMUL_TILE_INL_H_
