#include "atoll/ops/int8/cpu_rounded.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/ops/cpu/amx_tiles.h"
#include "atoll/ops/cpu/row_grain.h"
#include "atoll/ops/int8/cpu_tiles.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/int8/cpu_rounded.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kTerms = static_cast<std::size_t>(kInt8Group);
constexpr std::size_t kBlockRows = static_cast<std::size_t>(kInt8Rows);

using I32 = hn::RebindToSigned<F32>;
using I8 = hn::Rebind<std::int8_t, F32>;

/// A group of kTerms activations; what it writes is of one row and one group.
HWY_INLINE void round_group(const float* x, std::int8_t* values, float* scale, std::int32_t* sum) {
  const F32 df;
  const I32 di;
  // As integers, magnitudes are in the same order, and NaN comes last.
  auto most = hn::Zero(di);
  for (std::size_t i = 0; i < kTerms; i += hn::Lanes(df)) {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(df, x + i))));
  }
  const float largest = hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(di, most)));
  const Int8Rounding rounding = int8_rounding(largest);
  *scale = rounding.scale;
  const auto factor = hn::Set(df, rounding.factor);
  auto total = hn::Zero(di);
  for (std::size_t i = 0; i < kTerms; i += hn::Lanes(df)) {
    const auto q =
        rounding.factor == 0 ? hn::Zero(di) : hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), factor));
    total = hn::Add(total, q);
    hn::StoreU(hn::DemoteTo(I8(), q), I8(), values + i);
  }
  *sum = hn::GetLane(hn::SumOfLanes(di, total));
}

/// A row of x, (k); scales and sums of its groups lie kBlockRows apart.
void RoundRow(const float* x, std::size_t k, std::int8_t* values, float* scales,
              std::int32_t* sums) {
  for (std::size_t at = 0; at < k; at += kTerms) {
    if (at + kTerms <= k) {
      round_group(x + at, values + at, scales, sums);
    } else {
      float padded[kTerms] = {};
      std::memcpy(padded, x + at, (k - at) * sizeof(float));
      round_group(padded, values + at, scales, sums);
    }
    scales += kBlockRows;
    sums += kBlockRows;
  }
}

/// The sum of a group's products, which no order of additions changes.
HWY_INLINE std::int32_t dot_of_group(const std::int8_t* a, const std::int8_t* b) {
#if HWY_TARGET == HWY_SCALAR  // has no vector of two elements
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < kTerms; ++i) sum += a[i] * b[i];
  return sum;
#else
  const hn::Repartition<std::int16_t, F32> dw;
  const hn::Rebind<std::int8_t, decltype(dw)> db;
  const I32 di;
  auto even = hn::Zero(di), odd = hn::Zero(di);
  for (std::size_t i = 0; i < kTerms; i += hn::Lanes(dw)) {
    const auto av = hn::PromoteTo(dw, hn::LoadU(db, a + i));
    const auto bv = hn::PromoteTo(dw, hn::LoadU(db, b + i));
    even = hn::ReorderWidenMulAccumulate(di, av, bv, even, odd);
  }
  return hn::GetLane(hn::SumOfLanes(di, hn::Add(even, odd)));
#endif
}

/// Row j of weights with all rows of x; results lie ldy apart.
void RoundedColumn(const RoundedRows& x, const std::int8_t* w, const float* scales, std::size_t k,
                   float bias, float* y, std::size_t ldy) {
  const auto groups = static_cast<std::size_t>(x.groups);
  const std::size_t whole = k / kTerms;
  std::int8_t last[kTerms] = {};
  if (whole < groups) std::memcpy(last, w + whole * kTerms, k - whole * kTerms);
  for (std::size_t row = 0; row < static_cast<std::size_t>(x.count); ++row) {
    const std::int8_t* const values = x.values + row * groups * kTerms;
    const float* const factors =
        x.scales + row / kBlockRows * groups * kBlockRows + row % kBlockRows;
    float sum = 0;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::int8_t* const at = g == whole ? last : w + g * kTerms;
      const auto dot = static_cast<float>(dot_of_group(values + g * kTerms, at));
      sum = std::fma(dot * factors[g * kBlockRows], scales[g], sum);
    }
    y[row * ldy] = sum + bias;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(RoundRow);
HWY_EXPORT(RoundedColumn);

std::int64_t padded_rows(std::int64_t m) {
  return (m + kInt8Rows - 1) / kInt8Rows * kInt8Rows;
}
std::int64_t groups_of(std::int64_t k) {
  return (k + kInt8Group - 1) / kInt8Group;
}
Spec values_spec(std::int64_t m, std::int64_t k) {
  return {Dtype::kU8, {padded_rows(m), groups_of(k) * kInt8Group}};
}
Spec of_groups(Dtype dtype, std::int64_t m, std::int64_t k) {
  return {dtype, {padded_rows(m), groups_of(k)}};
}

const std::int8_t* bytes_of(const Tensor& tensor) {
  return reinterpret_cast<const std::int8_t*>(tensor.data<std::uint8_t>());
}

/// Rounds 16 rows at a time, those behind the last being zeros.
RoundedRows round_rows(Run& run, const float* x, std::int64_t m, std::int64_t k, bool packs) {
  const Tensor values = run.take_scratch(values_spec(m, k));
  const Tensor packed = run.take_scratch(values_spec(m, k));
  const Tensor scales = run.take_scratch(of_groups(Dtype::kF32, m, k));
  const Tensor sums = run.take_scratch(of_groups(Dtype::kI32, m, k));
  const std::int64_t groups = groups_of(k);
  const std::int64_t width = groups * kInt8Group;
  const auto block_bytes = static_cast<std::size_t>(kInt8Rows * width);
  run.threads().run(padded_rows(m) / kInt8Rows, [&](std::int64_t block) {
    const std::int64_t first = block * kInt8Rows;
    const std::int64_t rows = std::min(kInt8Rows, m - first);
    auto* const to = reinterpret_cast<std::int8_t*>(values.data<std::uint8_t>()) + first * width;
    float* const factors = scales.data<float>() + first * groups;
    std::int32_t* const totals = sums.data<std::int32_t>() + first * groups;
    if (rows < kInt8Rows) {
      std::memset(to, 0, block_bytes);
      std::fill_n(factors, kInt8Rows * groups, 0.0F);
      std::fill_n(totals, kInt8Rows * groups, 0);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      HWY_DYNAMIC_DISPATCH(RoundRow)
      (x + (first + i) * k, static_cast<std::size_t>(k), to + i * width, factors + i, totals + i);
    }
    if (!packs) return;
    int8_pack_rows(to, width, groups,
                   reinterpret_cast<std::int8_t*>(packed.data<std::uint8_t>()) + first * width);
  });
  return {.count = m,
          .groups = groups,
          .values = bytes_of(values),
          .packed = bytes_of(packed),
          .scales = scales.data<float>(),
          .sums = sums.data<std::int32_t>()};
}

/// Rows [begin, end) of weights, 16 at a time; the last ones overlap where they are no 16.
void slabs(const RoundedRows& x, const Int8Matrix& w, const Tensor& y, const float* bias,
           std::int64_t begin, std::int64_t end,
           void (*multiply)(const RoundedRows&, const Int8Slab&)) {
  const std::int64_t n = w.values.dim(0);
  const std::int64_t k = w.values.dim(1);
  for (std::int64_t row = begin; row < end; row += kInt8Rows) {
    const std::int64_t first = std::min(row, n - kInt8Rows);
    multiply(x, {.values = bytes_of(w.values) + first * k,
                 .scales = w.scales.data<float>() + first * x.groups,
                 .k = k,
                 .skip = row - first,
                 .bias = bias == nullptr ? nullptr : bias + first,
                 .y = y.data<float>() + first,
                 .ldy = n});
  }
}

void columns(const RoundedRows& x, const Int8Matrix& w, const Tensor& y, const float* bias,
             std::int64_t begin, std::int64_t end) {
  const std::int64_t n = w.values.dim(0);
  const std::int64_t k = w.values.dim(1);
  for (std::int64_t j = begin; j < end; ++j) {
    HWY_DYNAMIC_DISPATCH(RoundedColumn)
    (x, bytes_of(w.values) + j * k, w.scales.data<float>() + j * x.groups,
     static_cast<std::size_t>(k), bias == nullptr ? 0.0F : bias[j], y.data<float>() + j,
     static_cast<std::size_t>(n));
  }
}

}  // namespace

Declined int8_rounded(Run& run, Int8Arithmetic arithmetic, const Tensor& x, const Int8Matrix& w,
                      const Tensor& y, const Tensor& bias) {
  const std::int64_t n = w.values.dim(0);
  const std::int64_t k = w.values.dim(1);
  const bool in_slabs = arithmetic != Int8Arithmetic::kVector;
  if (in_slabs && n < kInt8Rows) return "fewer than 16 columns";
  Run inner = run;
  const RoundedRows rows =
      round_rows(inner, x.data<float>(), x.shape().num_rows(), k, /*packs=*/in_slabs);
  // Below 128 KiB a product of one row takes less than waking a thread may cost.
  constexpr std::int64_t kTaskBytes = std::int64_t{1} << 17;
  const std::int64_t grain =
      (row_grain(n, n * k, kTaskBytes) + kInt8Rows - 1) / kInt8Rows * kInt8Rows;
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  run.threads().run_chunked(n, grain, [&](std::int64_t begin, std::int64_t end) {
    if (!in_slabs) return columns(rows, w, y, added, begin, end);
    if (arithmetic == Int8Arithmetic::kVnni) {
      return slabs(rows, w, y, added, begin, end, int8_slab_vnni);
    }
    const AmxScope scope;
    slabs(rows, w, y, added, begin, end, int8_slab_amx);
  });
  return kServed;
}

std::size_t int8_rounded_scratch_bytes(std::int64_t m, std::int64_t k) {
  return 2 * align_up(values_spec(m, k).bytes()) + align_up(of_groups(Dtype::kF32, m, k).bytes()) +
         align_up(of_groups(Dtype::kI32, m, k).bytes());
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
