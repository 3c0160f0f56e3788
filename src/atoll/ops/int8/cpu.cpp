#include "atoll/ops/int8/cpu.h"

#include <algorithm>

#include "atoll/ops/cpu/row_grain.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/int8/cpu.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kGroup = static_cast<std::size_t>(kInt8Group);
// Bytes of a row, of kTileCols rows at once: what memory delivers while a load waits for it.
constexpr std::size_t kAhead = 1024;
constexpr int kTileCols = 4;  // rows of w at a time: their sums hide the latency of an add
constexpr int kTileRows = 2;  // rows of x: with more, two sets of sums leave no register

using I8 = hn::Rebind<std::int8_t, F32>;
using I32 = hn::Rebind<std::int32_t, F32>;

HWY_INLINE Vf from_int8(hn::Vec<I8> q) {
  return hn::ConvertTo(F32(), hn::PromoteTo(I32(), q));
}
HWY_INLINE Vf load_int8(const std::int8_t* p, Whole) {
  return from_int8(hn::LoadU(I8(), p));
}
HWY_INLINE Vf load_int8(const std::int8_t* p, Part part) {
  HWY_ALIGN std::int8_t buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, part.n);
  return from_int8(hn::Load(I8(), buffer));
}

/// Adds to sum[r][s] the products of elements [0, n) of a group of row r of x and row s of w, times
/// the group's factors. Products are summed before the factor is applied, once for all of them.
template <int kRows, int kCols, class Loop>
HWY_INLINE void add_group(const Int8Rows& rows, const float* x, const std::int8_t* values,
                          const float* scales, Vf (&sum)[kRows * kCols], Loop loop) {
  Vf part[kRows * kCols];
  HWY_UNROLL(8)
  for (Vf& value : part) value = hn::Zero(F32());
  loop([&](std::size_t i, auto lanes) HWY_ATTR {
    Vf xv[kRows];
    HWY_UNROLL(2)
    for (int r = 0; r < kRows; ++r) xv[r] = lanes.load(x + r * rows.k + i);
    HWY_UNROLL(4)
    for (int s = 0; s < kCols; ++s) {
      const Vf wv = load_int8(values + s * rows.k + i, lanes);
      HWY_UNROLL(2)
      for (int r = 0; r < kRows; ++r) {
        part[r * kCols + s] = hn::MulAdd(xv[r], wv, part[r * kCols + s]);
      }
    }
  });
  HWY_UNROLL(4)
  for (int s = 0; s < kCols; ++s) {
    const Vf scale = hn::Set(F32(), scales[s * rows.groups]);
    HWY_UNROLL(2)
    for (int r = 0; r < kRows; ++r) {
      sum[r * kCols + s] = hn::MulAdd(part[r * kCols + s], scale, sum[r * kCols + s]);
    }
  }
}

/// Dot products of kRows rows of x with kCols rows of w.
template <int kRows, int kCols>
HWY_INLINE void int8_dots(const Int8Rows& rows, float (&result)[kTileRows][kTileCols]) {
  Vf sum[kRows * kCols];
  HWY_UNROLL(8)
  for (Vf& value : sum) value = hn::Zero(F32());
  const std::size_t whole = rows.k / kGroup;
  // While a row's first cache lines are used, those of the next kCols rows are on their way.
  const std::size_t next = (kCols - 1) * rows.k;
  const std::size_t distance = std::min(kAhead, rows.k);
  for (std::size_t g = 0; g < whole; ++g) {
    const std::size_t begin = g * kGroup;
    const std::size_t ahead = begin + distance + (begin + distance >= rows.k ? next : 0);
    HWY_UNROLL(4)
    for (int s = 0; s < kCols; ++s) hwy::Prefetch(rows.values + s * rows.k + ahead);
    add_group<kRows, kCols>(rows, rows.x + begin, rows.values + begin, rows.scales + g, sum,
                            [&](auto body) HWY_ATTR {
                              HWY_UNROLL(8)
                              for (std::size_t i = 0; i < kGroup; i += hn::Lanes(F32())) {
                                body(i, Whole{});
                              }
                            });
  }
  if (const std::size_t begin = whole * kGroup; begin < rows.k) {
    add_group<kRows, kCols>(rows, rows.x + begin, rows.values + begin, rows.scales + whole, sum,
                            [&](auto body) HWY_ATTR { for_lanes(rows.k - begin, body); });
  }
  HWY_UNROLL(2)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int s = 0; s < kCols; ++s) {
      result[r][s] = hn::GetLane(hn::SumOfLanes(F32(), sum[r * kCols + s]));
    }
  }
}

/// Columns [begin, end) of y = x W^T + bias.  y: (m, n).
void Int8Columns(const Int8Rows& all, std::int64_t m, std::int64_t n, const float* bias, float* y,
                 std::int64_t begin, std::int64_t end) {
  for (std::int64_t j = begin; j < end;) {
    const int cols = j + kTileCols <= end ? kTileCols : 1;
    for (std::int64_t i = 0; i < m; i += kTileRows) {
      const bool pair = i + kTileRows <= m;
      Int8Rows here = all;
      here.x += static_cast<std::size_t>(i) * all.k;
      here.values += static_cast<std::size_t>(j) * all.k;
      here.scales += static_cast<std::size_t>(j) * all.groups;
      float result[kTileRows][kTileCols];
      if (cols == kTileCols) {
        pair ? int8_dots<2, kTileCols>(here, result) : int8_dots<1, kTileCols>(here, result);
      } else {
        pair ? int8_dots<2, 1>(here, result) : int8_dots<1, 1>(here, result);
      }
      for (int r = 0; r < (pair ? kTileRows : 1); ++r) {
        for (int s = 0; s < cols; ++s) {
          y[(i + r) * n + j + s] = result[r][s] + (bias == nullptr ? 0.0F : bias[j + s]);
        }
      }
    }
    j += cols;
  }
}

/// One row of w as f32.
void Int8WidenRow(const std::int8_t* values, const float* scales, std::size_t k, float* out) {
  for (std::size_t begin = 0; begin < k; begin += kGroup) {
    const Vf scale = hn::Set(F32(), *scales++);
    for_lanes(std::min(kGroup, k - begin), [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(hn::Mul(scale, load_int8(values + begin + i, lanes)), out + begin + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(Int8Columns);
HWY_EXPORT(Int8WidenRow);

const std::int8_t* bytes_of(const Int8Matrix& w) {
  return reinterpret_cast<const std::int8_t*>(w.values.data<std::uint8_t>());
}

}  // namespace

void int8_few_rows(Run& run, const Tensor& x, const Int8Matrix& w, const Tensor& y,
                   const Tensor& bias) {
  const std::int64_t n = w.values.dim(0);
  const std::int64_t k = w.values.dim(1);
  const std::int64_t groups = w.scales.dim(1);
  // Below 128 KiB a product takes less than waking a thread may cost.
  constexpr std::int64_t kTaskBytes = std::int64_t{1} << 17;
  const std::int64_t columns = row_grain(n, n * k, kTaskBytes);
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  run.threads().run_chunked(n, columns, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(Int8Columns)
    ({x.data<float>(), bytes_of(w), w.scales.data<float>(), static_cast<std::size_t>(k),
      static_cast<std::size_t>(groups)},
     x.shape().num_rows(), n, added, y.data<float>(), begin, end);
  });
}

void int8_widen(Run& run, const Int8Matrix& w, std::int64_t begin, std::int64_t end,
                const Tensor& out) {
  const std::int64_t k = w.values.dim(1);
  const std::int64_t groups = w.scales.dim(1);
  constexpr std::int64_t kTaskElements = 65536;
  const std::int64_t grain = std::max<std::int64_t>(1, kTaskElements / (k + 1));
  run.threads().run_chunked(end - begin, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      HWY_DYNAMIC_DISPATCH(Int8WidenRow)
      (bytes_of(w) + (begin + i) * k, w.scales.data<float>() + (begin + i) * groups,
       static_cast<std::size_t>(k), out.data<float>() + i * k);
    }
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
