#include "atoll/ops/matmul/cpu_few_rows.h"

#include <algorithm>

#include "atoll/ops/cpu/row_grain.h"
#include "atoll/ops/serve.h"
#include "atoll/ops/storage.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/matmul/cpu_few_rows.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

constexpr int kMaxTile = 4;
// 4 x 4 sums, 4 weights and a row of a take 21 of AVX-512's registers; with 16 of them 4 x 3 do.
constexpr int kTileCols = hn::MaxLanes(F32()) >= 16 ? 4 : 3;
// Of each row of bf16 weights: what memory delivers while a load waits for it (decision 0018).
constexpr std::size_t kAhead = 512;
constexpr std::size_t kLineElements = 64 / sizeof(Bf16);

/// Asks for the lines, kAhead elements from k's `i` on, of kCols rows at b, and where those end of
/// as many that follow.
template <int kCols>
HWY_INLINE void ask_ahead(std::size_t i, std::size_t k, const Bf16* b) {
  if (i % kLineElements != 0) return;
  std::size_t ahead = i + std::min(kAhead, k);
  if (ahead >= k) ahead += (kCols - 1) * k;
  HWY_UNROLL(4)
  for (int s = 0; s < kCols; ++s) hwy::Prefetch(b + s * k + ahead);
}

/// Dot products of kRows rows of a, each (k) long, with kCols rows of b. Without the unrolling the
/// compiler keeps the sums in memory, at half the speed.
template <int kRows, int kCols, class TA, class TB>
HWY_INLINE void dots(std::size_t k, const TA* a, const TB* b, float (&result)[kMaxTile][kMaxTile]) {
  Vf sum[kRows * kCols];
  HWY_UNROLL(16)
  for (Vf& value : sum) value = hn::Zero(F32());
  for_lanes(k, [&](std::size_t i, auto lanes) HWY_ATTR {
    if constexpr (std::is_same_v<TB, Bf16>) ask_ahead<kCols>(i, k, b);
    Vf bv[kCols];
    HWY_UNROLL(4)
    for (int s = 0; s < kCols; ++s) bv[s] = lanes.load(b + s * k + i);
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const Vf av = lanes.load(a + r * k + i);
      HWY_UNROLL(4)
      for (int s = 0; s < kCols; ++s) {
        sum[r * kCols + s] = hn::MulAdd(av, bv[s], sum[r * kCols + s]);
      }
    }
  });
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int s = 0; s < kCols; ++s) {
      result[r][s] = hn::GetLane(hn::SumOfLanes(F32(), sum[r * kCols + s]));
    }
  }
}

template <int kCols, class TA, class TB>
void dots_of(int rows, std::size_t k, const TA* a, const TB* b,
             float (&result)[kMaxTile][kMaxTile]) {
  switch (rows) {
    case 1:
      return dots<1, kCols>(k, a, b, result);
    case 2:
      return dots<2, kCols>(k, a, b, result);
    case 3:
      return dots<3, kCols>(k, a, b, result);
    default:
      return dots<4, kCols>(k, a, b, result);
  }
}

/// Columns [begin, end) of c. Rows beyond the fourth find their weights in the nearest cache.
template <class TA, class TB, class TC>
void few_rows_of(const MatmulArgs& args, std::int64_t begin, std::int64_t end) {
  const auto [transpose, m, n, k] = args.shape;
  const TA* a = args.a.data<TA>();
  const TB* b = args.b.data<TB>();
  const auto bias = [&](std::int64_t column) {
    if (!args.bias.defined()) return 0.0F;
    if (args.bias.dtype() == Dtype::kF32) return args.bias.data<float>()[column];
    return widen(args.bias.data<Bf16>()[column]);
  };
  TC* c = args.c.data<TC>();
  for (std::int64_t j = begin; j < end;) {
    const int cols = j + kTileCols <= end ? kTileCols : 1;
    for (std::int64_t i = 0; i < m; i += kMaxTile) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kMaxTile, m - i));
      float result[kMaxTile][kMaxTile];
      const auto dots_here = cols == 1 ? dots_of<1, TA, TB> : dots_of<kTileCols, TA, TB>;
      dots_here(rows, static_cast<std::size_t>(k), a + i * k, b + j * k, result);
      for (int r = 0; r < rows; ++r) {
        for (int s = 0; s < cols; ++s) {
          TC& out = c[(i + r) * n + j + s];
          out = narrow<TC>((args.accumulate ? widen(out) : 0.0F) + bias(j + s) + result[r][s]);
        }
      }
    }
    j += cols;
  }
}

void few_rows(const MatmulArgs& args, std::int64_t begin, std::int64_t end) {
  with_storage(args.a.dtype(), [&]<typename TA>(TA) HWY_ATTR {
    with_storage(args.b.dtype(), [&]<typename TB>(TB) HWY_ATTR {
      with_storage(args.c.dtype(),
                   [&]<typename TC>(TC) HWY_ATTR { few_rows_of<TA, TB, TC>(args, begin, end); });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(few_rows);

Declined matmul_few_rows(Run& run, const MatmulArgs& args) {
  if (args.shape.transpose != Transpose::kNT) return "not NT";
  if (args.shape.m > 8 && !run.row_stable) return "more than 8 rows";
  if (args.a.dtype() == Dtype::kF64) return "f64";
  return serve_host(run, [&] {
    // 10 to 25 us a task, which is what waking a thread may cost.
    constexpr std::int64_t kTaskBytes = std::int64_t{1} << 19;
    const auto element = static_cast<std::int64_t>(dtype_size(args.b.dtype()));
    const std::int64_t grain =
        row_grain(args.shape.n, args.shape.n * args.shape.k * element, kTaskBytes);
    run.threads().run_chunked(args.shape.n, grain, [&](auto begin, auto end) {
      HWY_DYNAMIC_DISPATCH(few_rows)(args, begin, end);
    });
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
