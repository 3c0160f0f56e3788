// What the attention kernels share: a product of small tiles, transposes, and 2^x. Compiled once
// per instruction set: include this after lanes-inl.h in a file that foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
#undef ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
#else
#define ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "atoll/ops/cpu/attention_shape.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kLanes = hn::MaxLanes(F32());
// Accumulators plus the vectors of b and one broadcast must fit the registers: 32 of them where
// vectors are 64 bytes wide, else (at least) 16.
constexpr std::size_t kKernelRows = 6;
constexpr std::size_t kKernelVecs = kLanes >= 16 ? 4 : 2;

/// The left operand of a product: element (i, k) is data[i * row + k * column]. It is read one
/// element at a time and broadcast, so any strides serve, and a transpose costs nothing.
struct Left {
  const float* data;
  std::size_t row;
  std::size_t column;

  HWY_INLINE Left from_row(std::size_t i) const { return {data + i * row, row, column}; }
};
/// Rows of vectors: the right operand or the result of a product.
template <typename T>
struct Rows {
  T* data;
  std::size_t stride;

  HWY_INLINE T* at(std::size_t row, std::size_t column) const {
    return data + row * stride + column;
  }
};

// c (kNumRows, kNumVecs vectors) = [c +] a b with all of c in registers; a sum runs over k in
// order.
template <std::size_t kNumRows, std::size_t kNumVecs>
HWY_NOINLINE void product_kernel(std::size_t num_k, Left a, Rows<const float> b, Rows<float> c,
                                 bool add) {
  const F32 d;
  Vf sum[kNumRows][kNumVecs];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kNumRows; ++i) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kNumVecs; ++v) {
      sum[i][v] = add ? hn::LoadU(d, c.at(i, v * kLanes)) : hn::Zero(d);
    }
  }
  const float* a_column = a.data;
  const float* b_row = b.data;
  for (std::size_t k = 0; k < num_k; ++k, a_column += a.column, b_row += b.stride) {
    Vf right[kNumVecs];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kNumVecs; ++v) right[v] = hn::LoadU(d, b_row + v * kLanes);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kNumRows; ++i) {
      const Vf left = hn::Set(d, a_column[i * a.row]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kNumVecs; ++v) {
        sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kNumRows; ++i) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kNumVecs; ++v) hn::StoreU(sum[i][v], d, c.at(i, v * kLanes));
  }
}

template <std::size_t kNumVecs>
void product_columns(std::size_t m, std::size_t num_k, Left a, Rows<const float> b, Rows<float> c,
                     bool add) {
  std::size_t i = 0;
  const auto step = [&](auto kernel, std::size_t rows) {
    for (; i + rows <= m; i += rows) {
      kernel(num_k, a.from_row(i), b, Rows<float>{c.at(i, 0), c.stride}, add);
    }
  };
  step(product_kernel<kKernelRows, kNumVecs>, kKernelRows);
  step(product_kernel<4, kNumVecs>, 4);
  step(product_kernel<2, kNumVecs>, 2);
  step(product_kernel<1, kNumVecs>, 1);
}

/// c (m, num_vecs vectors) = a (m, k) b (k, num_vecs vectors), added to c when `add`.
HWY_INLINE void product(std::size_t m, std::size_t num_vecs, std::size_t num_k, Left a,
                        Rows<const float> b, Rows<float> c, bool add) {
  while (num_vecs > 0) {
    // Even shares: 5 vectors are 3 + 2 rather than 4 + 1, which would be bound by latency.
    const std::size_t shares = (num_vecs + kKernelVecs - 1) / kKernelVecs;
    const std::size_t share = (num_vecs + shares - 1) / shares;
    if constexpr (kKernelVecs >= 4) {
      if (share == 4) product_columns<4>(m, num_k, a, b, c, add);
      if (share == 3) product_columns<3>(m, num_k, a, b, c, add);
    }
    if (share == 2) product_columns<2>(m, num_k, a, b, c, add);
    if (share == 1) product_columns<1>(m, num_k, a, b, c, add);
    b.data += share * kLanes;
    c.data += share * kLanes;
    num_vecs -= share;
  }
}

/// 2^x for x <= 0 within 2e-7 relative, exactly 0 below -127; NaN stays NaN on x86 vectors. Cheaper
/// than a library exp because scores already carry the factor log2(e).
HWY_INLINE Vf exp2_lanes(Vf x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  // The order of the operands matters: x86's maximum returns the second one when x is NaN.
  x = hn::Max(hn::Set(d, -127.0F), x);
  const auto whole = hn::NearestInt(x);
  const Vf f = hn::Sub(x, hn::ConvertTo(d, whole));
  // 2^f = 1 + f q(f) on [-1/2, 1/2], q interpolating (2^f - 1) / f in six Chebyshev nodes.
  Vf p = hn::Set(d, 1.5453163e-4F);
  p = hn::MulAdd(p, f, hn::Set(d, 1.3390863e-3F));
  p = hn::MulAdd(p, f, hn::Set(d, 9.6180826e-3F));
  p = hn::MulAdd(p, f, hn::Set(d, 5.5503571e-2F));
  p = hn::MulAdd(p, f, hn::Set(d, 2.4022651e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 6.9314719e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0F));
  const auto power = hn::ShiftLeft<23>(hn::Add(whole, hn::Set(di, 127)));
  return hn::Mul(p, hn::BitCast(d, power));
}

// Transposes go through blocks of 4 x 4 elements, in place: row r (of four) and block b of a vector
// hold elements d .. d + 3 of query 4 b + r, together, before or after transpose_four_rows.
constexpr std::size_t kColumnGroup = std::max<std::size_t>(kLanes, 4);

// Where elements d .. d + 3 of query q are together.
HWY_INLINE std::size_t block_offset(std::size_t q, std::size_t d, std::size_t stride) {
  const std::size_t lane = q % kColumnGroup;
  return (d + lane % 4) * stride + (q - lane) + lane / 4 * 4;
}

// Multiplies the four rows at p by factor[column] and transposes their blocks.
HWY_INLINE void transpose_four_rows(float* p, std::size_t stride, std::size_t num_columns,
                                    const float* factor) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t column = 0; column < num_columns; column += 4) {
    float block[4][4];
    for (std::size_t i = 0; i < 16; ++i) {
      block[i % 4][i / 4] = p[i / 4 * stride + column + i % 4] * factor[column + i % 4];
    }
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(p + i * stride + column, block[i], 16);
  }
#else
  const F32 d;
  for (std::size_t column = 0; column < num_columns; column += kLanes) {
    float* block = p + column;
    const Vf f = hn::LoadU(d, factor + column);
    const Vf r0 = hn::Mul(f, hn::LoadU(d, block));
    const Vf r1 = hn::Mul(f, hn::LoadU(d, block + stride));
    const Vf r2 = hn::Mul(f, hn::LoadU(d, block + 2 * stride));
    const Vf r3 = hn::Mul(f, hn::LoadU(d, block + 3 * stride));
    const Vf low02 = hn::InterleaveLower(d, r0, r2);
    const Vf low13 = hn::InterleaveLower(d, r1, r3);
    const Vf high02 = hn::InterleaveUpper(d, r0, r2);
    const Vf high13 = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, block);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, block + stride);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, block + 2 * stride);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, block + 3 * stride);
  }
#endif
}

// The columns of num_vecs vectors, in whole groups.
HWY_INLINE std::size_t grouped_columns(std::size_t num_vecs) {
  return (num_vecs * kLanes + kColumnGroup - 1) / kColumnGroup * kColumnGroup;
}

/// columns (D up to a multiple of 4, num_vecs vectors of queries) = scale * rows^T, zero where a
/// row or an element does not exist.
HWY_INLINE void pack_transposed(Rows<const float> rows, std::size_t num_rows, std::size_t D,
                                float scale, std::size_t num_vecs, Rows<float> columns) {
  const std::size_t num_columns = grouped_columns(num_vecs);
  for (std::size_t q = 0; q < num_columns; ++q) {
    std::size_t d = 0;
    for (; q < num_rows && d + 4 <= D; d += 4) {
      std::memcpy(columns.data + block_offset(q, d, columns.stride), rows.at(q, d), 16);
    }
    for (; d < D; d += 4) {
      float block[4] = {};
      if (q < num_rows) std::memcpy(block, rows.at(q, d), (D - d) * sizeof(float));
      std::memcpy(columns.data + block_offset(q, d, columns.stride), block, 16);
    }
  }
  HWY_ALIGN float factor[kMaxQueryTile];
  std::fill_n(factor, kMaxQueryTile, scale);
  for (std::size_t d = 0; d < D; d += 4) {
    transpose_four_rows(columns.at(d, 0), columns.stride, num_columns, factor);
  }
}

/// Room for kElements of f32 where rows stored as T have to be widened; none where they are f32.
template <class T, std::size_t kElements>
struct Room {
  HWY_ALIGN float data[kElements];
};
template <std::size_t kElements>
struct Room<float, kElements> {
  float* data = nullptr;
};
template <class T>
using RoomForQueries = Room<T, kTileElements>;
template <class T>
using RoomForKeys = Room<T, kKeyTile * kMaxTiledHeadDim>;

/// num_rows rows of D elements in f32: where they lie, or widened into `room`.
HWY_INLINE Rows<const float> in_f32(Rows<const float> rows, std::size_t, std::size_t, float*) {
  return rows;
}
HWY_INLINE Rows<const float> in_f32(Rows<const Bf16> rows, std::size_t num_rows, std::size_t D,
                                    float* room) {
  const Rows<float> wide = {room, padded(D)};
  for (std::size_t row = 0; row < num_rows; ++row) {
    const Bf16* from = rows.at(row, 0);
    float* to = wide.at(row, 0);
    for_lanes(
        D, [&](std::size_t i, auto lanes) HWY_ATTR { lanes.store(lanes.load(from + i), to + i); });
  }
  return {room, padded(D)};
}

/// rows = (columns * factor per query)^T; destroys columns, which has D up to a multiple of 4 rows.
HWY_INLINE void unpack_transposed(Rows<float> columns, const float* factor, std::size_t num_rows,
                                  std::size_t D, std::size_t num_vecs, Rows<float> rows) {
  const std::size_t num_columns = grouped_columns(num_vecs);
  for (std::size_t d = 0; d < D; d += 4) {
    transpose_four_rows(columns.at(d, 0), columns.stride, num_columns, factor);
  }
  for (std::size_t q = 0; q < num_rows; ++q) {
    std::size_t d = 0;
    for (; d + 4 <= D; d += 4) {
      std::memcpy(rows.at(q, d), columns.data + block_offset(q, d, columns.stride), 16);
    }
    if (d < D) {
      std::memcpy(rows.at(q, d), columns.data + block_offset(q, d, columns.stride),
                  (D - d) * sizeof(float));
    }
  }
}

/// The same for rows in bf16, by way of `room`, from where they are rounded once.
HWY_INLINE void unpack_transposed(Rows<float> columns, const float* factor, std::size_t num_rows,
                                  std::size_t D, std::size_t num_vecs, Rows<Bf16> rows,
                                  float* room) {
  const Rows<float> wide = {room, padded(D)};
  unpack_transposed(columns, factor, num_rows, D, num_vecs, wide);
  for (std::size_t row = 0; row < num_rows; ++row) {
    const float* from = wide.at(row, 0);
    Bf16* to = rows.at(row, 0);
    for_lanes(
        D, [&](std::size_t i, auto lanes) HWY_ATTR { lanes.store(lanes.load(from + i), to + i); });
  }
}
HWY_INLINE void unpack_transposed(Rows<float> columns, const float* factor, std::size_t num_rows,
                                  std::size_t D, std::size_t num_vecs, Rows<float> rows, float*) {
  unpack_transposed(columns, factor, num_rows, D, num_vecs, rows);
}

/// The scores of one tile of keys against one tile of queries: element (key, query) of the
/// transposed score matrix, queries in lanes, so that a softmax needs no sum across lanes. The keys
/// a query sees are one stretch, and both its ends move up from query to query. A tile that holds
/// such an end is worked off in bands of keys, each leaving out the vectors of queries on either
/// side that see none of its keys; a band's queries are one stretch too.
class TileOfScores {
 public:
  /// Keys first_key + [0, num_keys) against num_vecs vectors of queries, lane 0 at first_query.
  /// first_keys: per lane, never falling, the first key its query sees; aligned, and outlives this.
  HWY_INLINE TileOfScores(std::size_t first_key, std::size_t num_keys, std::size_t first_query,
                          std::size_t num_vecs, const std::int32_t* first_keys)
      : first_key_(first_key),
        num_keys_(num_keys),
        first_query_(first_query),
        num_vecs_(num_vecs),
        first_keys_(first_keys),
        diagonal_(first_key + num_keys > first_query + 1),
        cut_(first_key_of(num_vecs * kLanes - 1) > first_key) {}

  HWY_INLINE std::size_t first_key() const { return first_key_; }
  HWY_INLINE std::size_t num_vecs() const { return num_vecs_; }
  /// Is some score masked?
  HWY_INLINE bool partial() const { return diagonal_ || cut_; }
  /// The rows [begin, end) of the bands that reach vector v; the others hold no scores there.
  HWY_INLINE std::size_t begin_row(std::size_t v) const {
    const std::size_t key = first_key_of(v * kLanes);
    if (!cut_ || key <= first_key_) return 0;
    if (key - first_key_ >= num_keys_) return num_keys_;
    return (key - first_key_) / kBand * kBand;
  }
  HWY_INLINE std::size_t end_row(std::size_t v) const {
    if (!diagonal_) return num_keys_;
    const std::size_t end = first_query_ + (v + 1) * kLanes;
    if (end <= first_key_) return 0;
    return std::min(num_keys_, (end - first_key_ + kBand - 1) / kBand * kBand);
  }
  /// Lanes of vector v whose query sees key `row`.
  HWY_INLINE hn::Mask<F32> visible(std::size_t row, std::size_t v) const {
    const F32 d;
    const auto lead = static_cast<std::ptrdiff_t>(first_key_ + row) -
                      static_cast<std::ptrdiff_t>(first_query_ + v * kLanes);
    const auto not_later = hn::Ge(hn::Iota(d, 0.0F), hn::Set(d, static_cast<float>(lead)));
    if (!cut_) return not_later;
    const hn::RebindToSigned<F32> di;
    const auto key = hn::Set(di, static_cast<std::int32_t>(first_key_ + row));
    const auto too_early = hn::Lt(key, hn::Load(di, first_keys_ + v * kLanes));
    return hn::And(not_later, hn::Not(hn::RebindMask(d, too_early)));
  }
  /// fn(first row, number of rows, first vector, end of the vectors) for each band with anything
  /// visible.
  template <class Fn>
  HWY_INLINE void for_bands(Fn fn) const {
    const std::size_t band = partial() ? kBand : num_keys_;
    for (std::size_t row = 0; row < num_keys_; row += band) {
      const std::size_t num_rows = std::min(band, num_keys_ - row);
      const std::size_t vec = first_vec(row);
      const std::size_t end = end_vec(row + num_rows - 1);
      if (vec < end) fn(row, num_rows, vec, end);
    }
  }

 private:
  static constexpr std::size_t kBand = kDiagonalBand;

  HWY_INLINE std::size_t first_key_of(std::size_t lane) const {
    return static_cast<std::size_t>(first_keys_[lane]);
  }
  // The first vector with a query that does not come before key `row`.
  HWY_INLINE std::size_t first_vec(std::size_t row) const {
    const std::size_t key = first_key_ + row;
    return key > first_query_ ? (key - first_query_) / kLanes : 0;
  }
  // The end of the vectors with a query whose first key is `row` or before.
  HWY_INLINE std::size_t end_vec(std::size_t row) const {
    std::size_t end = num_vecs_;
    while (cut_ && end > 0 && first_key_of((end - 1) * kLanes) > first_key_ + row) --end;
    return end;
  }

  std::size_t first_key_;
  std::size_t num_keys_;
  std::size_t first_query_;
  std::size_t num_vecs_;
  const std::int32_t* first_keys_;
  bool diagonal_;  // a query comes before a key
  bool cut_;       // a query's first key comes after the tile's
};

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_ATTENTION_TILE_INL_H_
