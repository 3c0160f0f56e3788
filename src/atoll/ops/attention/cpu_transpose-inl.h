// Rows to columns and back for the attention kernels, which hold queries in lanes. Compiled once
// per instruction set: include this after hwy/highway.h in a file that foreach_target.h
// re-includes.

#if defined(ATOLL_OPS_CPU_ATTENTION_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_ATTENTION_TRANSPOSE_INL_H_
#undef ATOLL_OPS_CPU_ATTENTION_TRANSPOSE_INL_H_
#else
#define ATOLL_OPS_CPU_ATTENTION_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "atoll/ops/attention/cpu_product-inl.h"
#include "atoll/ops/attention/cpu_shape.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Block i (of four elements) of the vector is at row 4 i from p on.
template <class D>
HWY_INLINE hn::Vec<D> load_row_blocks(D d, const float* p, std::size_t stride) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_row_blocks(half, p + hn::MaxLanes(half) * stride, stride),
                       load_row_blocks(half, p, stride));
  }
}
template <class D>
HWY_INLINE void store_row_blocks(D d, hn::Vec<D> v, float* p, std::size_t stride) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, p);
  } else {
    const hn::Half<D> half;
    store_row_blocks(half, hn::LowerHalf(half, v), p, stride);
    store_row_blocks(half, hn::UpperHalf(half, v), p + hn::MaxLanes(half) * stride, stride);
  }
}

// Transposes the 4 x 4 elements that a block of four vectors is: its own inverse.
struct FourVectors {
  Vf v[4];

  HWY_INLINE FourVectors transposed() const {
    const F32 d;
    const Vf low02 = hn::InterleaveLower(d, v[0], v[2]);
    const Vf low13 = hn::InterleaveLower(d, v[1], v[3]);
    const Vf high02 = hn::InterleaveUpper(d, v[0], v[2]);
    const Vf high13 = hn::InterleaveUpper(d, v[1], v[3]);
    return {{hn::InterleaveLower(d, low02, low13), hn::InterleaveUpper(d, low02, low13),
             hn::InterleaveLower(d, high02, high13), hn::InterleaveUpper(d, high02, high13)}};
  }
};
#endif

// How many of D elements whole blocks hold.
HWY_INLINE std::size_t in_blocks(std::size_t D) {
  return HWY_TARGET == HWY_SCALAR ? 0 : D / 4 * 4;
}

/// columns (D, num_vecs vectors) = scale * rows^T, zero where a row does not exist.
HWY_INLINE void pack_transposed(Rows<const float> rows, std::size_t num_rows, std::size_t D,
                                float scale, std::size_t num_vecs, Rows<float> columns) {
  for (std::size_t q = 0; q < num_vecs * kLanes; q += kLanes) {
    const std::size_t num_here = std::min(kLanes, num_rows - q);
    std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const F32 d;
    const Vf factor = hn::Set(d, scale);
    for (; num_here == kLanes && i < in_blocks(D); i += 4) {
      FourVectors block;
      for (std::size_t r = 0; r < 4; ++r) {
        block.v[r] = load_row_blocks(d, rows.at(q + r, i), rows.stride);
      }
      block = block.transposed();
      for (std::size_t r = 0; r < 4; ++r) {
        hn::StoreU(hn::Mul(factor, block.v[r]), d, columns.at(i + r, q));
      }
    }
#endif
    for (; i < D; ++i) {
      float* column = columns.at(i, q);
      for (std::size_t r = 0; r < num_here; ++r) column[r] = scale * *rows.at(q + r, i);
      std::fill(column + num_here, column + kLanes, 0.0F);
    }
  }
}

/// rows = (columns * factor per query)^T.
HWY_INLINE void unpack_transposed(Rows<const float> columns, const float* factor,
                                  std::size_t num_rows, std::size_t D, Rows<float> rows) {
  for (std::size_t q = 0; q < num_rows; q += kLanes) {
    const std::size_t num_here = std::min(kLanes, num_rows - q);
    std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const F32 d;
    const Vf scale = hn::LoadU(d, factor + q);
    for (; num_here == kLanes && i < in_blocks(D); i += 4) {
      FourVectors block;
      for (std::size_t r = 0; r < 4; ++r) {
        block.v[r] = hn::Mul(scale, hn::LoadU(d, columns.at(i + r, q)));
      }
      block = block.transposed();
      for (std::size_t r = 0; r < 4; ++r) {
        store_row_blocks(d, block.v[r], rows.at(q + r, i), rows.stride);
      }
    }
#endif
    for (; i < D; ++i) {
      for (std::size_t r = 0; r < num_here; ++r) {
        *rows.at(q + r, i) = *columns.at(i, q + r) * factor[q + r];
      }
    }
  }
}

/// The same for rows of f32 or bf16; bf16 goes by way of `room` (num_rows, padded(D)), from where
/// it is rounded once.
HWY_INLINE void unpack_transposed(Rows<const float> columns, const float* factor,
                                  std::size_t num_rows, std::size_t D, Rows<float> rows, float*) {
  unpack_transposed(columns, factor, num_rows, D, rows);
}
HWY_INLINE void unpack_transposed(Rows<const float> columns, const float* factor,
                                  std::size_t num_rows, std::size_t D, Rows<Bf16> rows,
                                  float* room) {
  const Rows<float> wide = {room, padded(D)};
  unpack_transposed(columns, factor, num_rows, D, wide);
  for (std::size_t row = 0; row < num_rows; ++row) {
    const float* from = wide.at(row, 0);
    Bf16* to = rows.at(row, 0);
    for_lanes(
        D, [&](std::size_t i, auto lanes) HWY_ATTR { lanes.store(lanes.load(from + i), to + i); });
  }
}

/// rows = keep rows + (columns * factor)^T, with a factor and a keep per query; `room` as above.
HWY_INLINE void merge_transposed(Rows<const float> columns, const float* factor, const float* keep,
                                 std::size_t num_rows, std::size_t D, Rows<float> rows,
                                 float* room) {
  const F32 d;
  const Rows<float> added = {room, padded(D)};
  unpack_transposed(columns, factor, num_rows, D, added);
  for (std::size_t row = 0; row < num_rows; ++row) {
    const float* from = added.at(row, 0);
    float* to = rows.at(row, 0);
    const Vf kept = hn::Set(d, keep[row]);
    for_lanes(D, [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(hn::MulAdd(kept, lanes.load(to + i), lanes.load(from + i)), to + i);
    });
  }
}

/// num_rows rows of D elements in f32, one after the other in `room` (num_rows, padded(D)), zero in
/// the padding. Rows of a fused qkv tensor lie so far apart that few of them fit the first-level
/// cache at once, whose sets they share.
template <class T>
HWY_INLINE Rows<const float> gather_rows(Rows<const T> rows, std::size_t num_rows, std::size_t D,
                                         float* room) {
  const Rows<float> wide = {room, padded(D)};
  for (std::size_t row = 0; row < num_rows; ++row) {
    const T* from = rows.at(row, 0);
    float* to = wide.at(row, 0);
    for_lanes(
        D, [&](std::size_t i, auto lanes) HWY_ATTR { lanes.store(lanes.load(from + i), to + i); });
    std::fill(to + D, to + wide.stride, 0.0F);
  }
  return {room, wide.stride};
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_ATTENTION_TRANSPOSE_INL_H_
