#include "atoll/ops/cpu/column_sum.h"

#include <algorithm>

#include "atoll/ops/cpu/highway_targets.h"
#include "atoll/ops/serve.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/column_sum.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// sum[j] += the sum over `rows` rows of x (rows, n), four rows a pass over the sum.
void add_rows(std::size_t rows, std::size_t n, const float* x, float* sum) {
  std::size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* row = x + r * n;
    for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf first = hn::Add(lanes.load(row + i), lanes.load(row + n + i));
      const Vf second = hn::Add(lanes.load(row + 2 * n + i), lanes.load(row + 3 * n + i));
      lanes.store(hn::Add(lanes.load(sum + i), hn::Add(first, second)), sum + i);
    });
  }
  for (; r < rows; ++r) {
    const float* row = x + r * n;
    for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(hn::Add(lanes.load(sum + i), lanes.load(row + i)), sum + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(add_rows);

namespace {

/// At least 64 rows a block, and at most 64 blocks, so that the partial sums stay small.
std::int64_t rows_per_block(std::int64_t rows) {
  return std::max<std::int64_t>(64, (rows + 63) / 64);
}

}  // namespace

std::size_t column_sum_scratch_bytes(std::int64_t rows, std::int64_t n) {
  const std::int64_t blocks = (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
  return align_up(static_cast<std::size_t>(blocks * n) * sizeof(float));
}

Declined column_sum(Run& run, const ColumnSumArgs& args) {
  return serve_f32(run, args.dy.dtype(), [&] {
    const std::int64_t rows = args.dy.shape().num_rows();
    const std::int64_t n = args.dy.dim(-1);
    const std::int64_t grain = rows_per_block(rows);
    const std::int64_t blocks = (rows + grain - 1) / grain;
    Run inner = run;
    float* partial = inner.take_scratch({Dtype::kF32, {blocks, n}}).data<float>();
    run.threads().run_chunked(rows, grain, [&](std::int64_t begin, std::int64_t end) {
      float* sum = partial + begin / grain * n;
      std::fill(sum, sum + n, 0.0F);
      HWY_DYNAMIC_DISPATCH(add_rows)
      (static_cast<std::size_t>(end - begin), static_cast<std::size_t>(n),
       args.dy.data<float>() + begin * n, sum);
    });
    HWY_DYNAMIC_DISPATCH(add_rows)
    (static_cast<std::size_t>(blocks), static_cast<std::size_t>(n), partial,
     args.dbias.data<float>());
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
