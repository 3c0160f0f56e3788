#include "atoll/ops/cpu/matmul_few_rows.h"

#include <algorithm>

#include "atoll/ops/cpu/highway_targets.h"
#include "atoll/ops/serve.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/matmul_few_rows.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// Dot products of kRows rows of a, each (k) long, with kCols rows of b.
template <int kRows, int kCols>
HWY_INLINE void dots(std::size_t k, const float* a, const float* b, float (&result)[8][4]) {
  Vf sum[kRows][kCols];
  for (auto& row : sum) {
    for (auto& value : row) value = hn::Zero(F32());
  }
  for_lanes(k, [&](std::size_t i, auto lanes) HWY_ATTR {
    Vf bv[kCols];
    for (int s = 0; s < kCols; ++s) bv[s] = lanes.load(b + s * k + i);
    for (int r = 0; r < kRows; ++r) {
      const Vf av = lanes.load(a + r * k + i);
      for (int s = 0; s < kCols; ++s) sum[r][s] = hn::MulAdd(av, bv[s], sum[r][s]);
    }
  });
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kCols; ++s) {
      result[r][s] = hn::GetLane(hn::SumOfLanes(F32(), sum[r][s]));
    }
  }
}

/// Columns [begin, end) of c for kRows rows.
template <int kRows>
void columns(const MatmulArgs& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = args.shape.n;
  const std::int64_t k = args.shape.k;
  const float* a = args.a.data<float>();
  const float* b = args.b.data<float>();
  const float* bias = args.bias.defined() ? args.bias.data<float>() : nullptr;
  float* c = args.c.data<float>();
  constexpr int kCols = kRows <= 4 ? 4 : 2;  // kRows * kCols sums must stay in registers
  for (std::int64_t j = begin; j < end;) {
    const int cols = j + kCols <= end ? kCols : 1;
    float result[8][4];
    if (cols == kCols) {
      dots<kRows, kCols>(static_cast<std::size_t>(k), a, b + j * k, result);
    } else {
      dots<kRows, 1>(static_cast<std::size_t>(k), a, b + j * k, result);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int s = 0; s < cols; ++s) {
        float& out = c[r * n + j + s];
        out =
            (args.accumulate ? out : 0.0F) + (bias != nullptr ? bias[j + s] : 0.0F) + result[r][s];
      }
    }
    j += cols;
  }
}

void few_rows(const MatmulArgs& args, std::int64_t begin, std::int64_t end) {
  switch (args.shape.m) {
    case 1:
      return columns<1>(args, begin, end);
    case 2:
      return columns<2>(args, begin, end);
    case 3:
      return columns<3>(args, begin, end);
    case 4:
      return columns<4>(args, begin, end);
    case 5:
      return columns<5>(args, begin, end);
    case 6:
      return columns<6>(args, begin, end);
    case 7:
      return columns<7>(args, begin, end);
    default:
      return columns<8>(args, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(few_rows);

Declined matmul_few_rows(Run& run, const MatmulArgs& args) {
  if (args.shape.transpose != Transpose::kNT) return "not NT";
  if (args.shape.m > 8) return "more than 8 rows";
  return serve_f32(run, args.c.dtype(), [&] {
    // 256 KiB of weights a task: worth a thread's waking, small enough to share out evenly.
    constexpr std::int64_t kTaskElements = 65536;
    const std::int64_t grain = std::max<std::int64_t>(4, kTaskElements / (args.shape.k + 1));
    run.threads().run_chunked(args.shape.n, (grain + 3) / 4 * 4, [&](auto begin, auto end) {
      HWY_DYNAMIC_DISPATCH(few_rows)(args, begin, end);
    });
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
