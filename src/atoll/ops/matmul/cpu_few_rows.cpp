#include "atoll/ops/matmul/cpu_few_rows.h"

#include <algorithm>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/ops/cpu/row_grain.h"
#include "atoll/ops/matmul/low_rank_rows.h"
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

// y[j] += sum of low[i] * b[j, i], for columns [begin, end) of one row.  low: (k)  b: (n, k)
template <int kCols>
HWY_INLINE void add_columns(std::size_t k, const float* low, const float* b, float* y) {
  float result[kMaxTile][kMaxTile];
  dots<1, kCols>(k, low, b, result);
  HWY_UNROLL(4)
  for (int s = 0; s < kCols; ++s) y[s] += result[0][s];
}

void add_low_rank(std::size_t k, const float* low, const float* b, std::int64_t columns, float* y) {
  std::int64_t j = 0;
  for (; j + kTileCols <= columns; j += kTileCols) {
    add_columns<kTileCols>(k, low, b + j * static_cast<std::int64_t>(k), y + j);
  }
  for (; j < columns; ++j) add_columns<1>(k, low, b + j * static_cast<std::int64_t>(k), y + j);
}

// low[i] = x . a[i], for `rank` rows of a.  x: (k)  a: (rank, k)
void low_rank_input(std::size_t k, const float* x, const float* a, std::int64_t rank, float* low) {
  std::fill_n(low, rank, 0.0F);
  std::int64_t i = 0;
  for (; i + kTileCols <= rank; i += kTileCols) {
    add_columns<kTileCols>(k, x, a + i * static_cast<std::int64_t>(k), low + i);
  }
  for (; i < rank; ++i) add_columns<1>(k, x, a + i * static_cast<std::int64_t>(k), low + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(few_rows);
HWY_EXPORT(add_low_rank);
HWY_EXPORT(low_rank_input);

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

namespace {

void low_rank_rows(Run& run, std::span<const LowRankRows> parts, Tensor x, Tensor y) {
  struct Row {
    const LowRankRows* part;
    std::int64_t row;
  };
  std::vector<Row> rows;
  std::int64_t max_rank = 1;
  for (const LowRankRows& part : parts) {
    ATOLL_CHECK(part.begin >= 0 && part.begin + part.count <= x.dim(0) &&
                    part.a.dim(1) == x.dim(1) && part.b.dim(0) == y.dim(1) &&
                    part.a.dim(0) == part.b.dim(1),
                "rows {} to {} of {}, factors {} and {}", part.begin, part.begin + part.count,
                x.spec().to_string(), part.a.spec().to_string(), part.b.spec().to_string());
    for (std::int64_t i = 0; i < part.count; ++i) rows.push_back({&part, part.begin + i});
    max_rank = std::max(max_rank, part.a.dim(0));
  }
  if (rows.empty()) return;
  Run inner = run;
  float* low = inner.take_scratch({Dtype::kF32, {std::ssize(rows), max_rank}}).data<float>();
  run.threads().run(std::ssize(rows), [&](std::int64_t i) {
    const auto& [part, row] = rows[static_cast<std::size_t>(i)];
    HWY_DYNAMIC_DISPATCH(low_rank_input)
    (static_cast<std::size_t>(x.dim(1)), x.data<float>() + row * x.dim(1), part->a.data<float>(),
     part->a.dim(0), low + i * max_rank);
  });
  // So many columns of a row take about as long as it takes to wake a thread.
  constexpr std::int64_t kColumns = 1024;
  const std::int64_t pieces = (y.dim(1) + kColumns - 1) / kColumns;
  run.threads().run(std::ssize(rows) * pieces, [&](std::int64_t task) {
    const std::int64_t i = task / pieces, begin = task % pieces * kColumns;
    const auto& [part, row] = rows[static_cast<std::size_t>(i)];
    const std::int64_t rank = part->a.dim(0);
    HWY_DYNAMIC_DISPATCH(add_low_rank)
    (static_cast<std::size_t>(rank), low + i * max_rank, part->b.data<float>() + begin * rank,
     std::min(kColumns, y.dim(1) - begin), y.data<float>() + row * y.dim(1) + begin);
  });
}

}  // namespace
}  // namespace atl::ops::cpu

namespace atl::ops {

void add_low_rank_rows(Run& run, std::span<const LowRankRows> parts, Tensor x, Tensor y) {
  cpu::low_rank_rows(run, parts, x, y);
}

}  // namespace atl::ops
#endif  // HWY_ONCE
