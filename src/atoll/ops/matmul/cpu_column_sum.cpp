#include "atoll/ops/matmul/cpu_column_sum.h"

#include <algorithm>

#include "atoll/ops/serve.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/matmul/cpu_column_sum.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// sum[j] += the sum over `rows` rows of x (rows, n), four rows a pass over the sum.
template <class T>
void add_rows_of(std::size_t rows, std::size_t n, const T* x, float* sum) {
  std::size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T* row = x + r * n;
    for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf first = hn::Add(lanes.load(row + i), lanes.load(row + n + i));
      const Vf second = hn::Add(lanes.load(row + 2 * n + i), lanes.load(row + 3 * n + i));
      lanes.store(hn::Add(lanes.load(sum + i), hn::Add(first, second)), sum + i);
    });
  }
  for (; r < rows; ++r) {
    const T* row = x + r * n;
    for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(hn::Add(lanes.load(sum + i), lanes.load(row + i)), sum + i);
    });
  }
}

/// Rows [begin, end) of x.
void add_rows(const Tensor& x, std::int64_t begin, std::int64_t end, float* sum) {
  const std::int64_t n = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    add_rows_of(static_cast<std::size_t>(end - begin), static_cast<std::size_t>(n),
                x.data<T>() + begin * n, sum);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(add_rows);

std::size_t column_sum_scratch_bytes(std::int64_t rows, std::int64_t n) {
  return align_up(static_cast<std::size_t>(column_sum_rows(rows).count * n) * sizeof(float));
}

void sum_row_blocks(Run& run, const Tensor& dy, const Tensor& sums) {
  const std::int64_t rows = dy.shape().num_rows(), n = dy.dim(-1);
  const std::int64_t grain = column_sum_rows(rows).rows_per_block;
  run.threads().run_chunked(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    float* sum = sums.data<float>() + begin / grain * n;
    std::fill(sum, sum + n, 0.0F);
    HWY_DYNAMIC_DISPATCH(add_rows)(dy, begin, end, sum);
  });
}

Declined add_column_sums(Run& run, const AddColumnSumsArgs& args) {
  return serve_f32(run, args.sums.dtype(), [&] {
    HWY_DYNAMIC_DISPATCH(add_rows)(args.sums, 0, args.sums.dim(0), args.dbias.data<float>());
  });
}

Declined column_sum(Run& run, const ColumnSumArgs& args) {
  return serve_f32_or_bf16(run, args.dy.dtype(), [&] {
    const std::int64_t blocks = column_sum_rows(args.dy.shape().num_rows()).count;
    Run inner = run;
    const Tensor partial = inner.take_scratch({Dtype::kF32, {blocks, args.dy.dim(-1)}});
    sum_row_blocks(run, args.dy, partial);
    HWY_DYNAMIC_DISPATCH(add_rows)(partial, 0, blocks, args.dbias.data<float>());
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
