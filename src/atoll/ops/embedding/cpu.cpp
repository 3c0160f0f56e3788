#include "atoll/ops/embedding/cpu.h"

#include <cstring>

#include "atoll/ops/positions.h"
#include "atoll/simd/convert.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/embedding/cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

template <class X, class Sum>
void add_to(const X* x, std::size_t n, Sum* sum) {
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(sum + i), lanes.load(x + i)), sum + i);
  });
}

// Adds columns [begin, end) of each row of x to those of table row rows[row] - first, in row order;
// rows that the table does not have are left out.
void ScatterAddColumns(const std::int32_t* rows, const Tensor& x, std::int64_t begin,
                       std::int64_t end, std::int64_t first, std::int64_t num_table_rows,
                       float* table) {
  const std::int64_t C = x.dim(-1);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
      const std::int64_t to = rows[row] - first;
      if (to < 0 || to >= num_table_rows) continue;
      add_to(x.data<T>() + row * C + begin, static_cast<std::size_t>(end - begin),
             table + to * C + begin);
    }
  });
}

// Adds `num_rows` rows of x from row `from` to those of sum from row `to`.
void AddRows(const Tensor& x, std::int64_t from, std::int64_t num_rows, const Tensor& sum,
             std::int64_t to) {
  const std::int64_t C = x.dim(-1);
  const auto n = static_cast<std::size_t>(num_rows * C);
  with_storage(x.dtype(), [&]<typename X>(X) HWY_ATTR {
    with_storage(sum.dtype(), [&]<typename Sum>(Sum) HWY_ATTR {
      add_to(x.data<X>() + from * C, n, sum.data<Sum>() + to * C);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(AddRows);
HWY_EXPORT(ScatterAddColumns);

constexpr std::int64_t kRowsPerTask = 16;
// Four cache lines: narrower slices would waste what the memory fetches beside them.
constexpr std::int64_t kColumnsPerTask = 64;

}  // namespace

void embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y) {
  const auto C = static_cast<std::size_t>(table.dim(1));
  const std::size_t row_bytes = C * dtype_size(table.dtype());
  const auto* from = static_cast<const std::byte*>(table.raw());
  auto* to = static_cast<std::byte*>(y.raw());
  const bool is_widened = y.dtype() != table.dtype();
  run.threads().run_chunked(
      tokens.num_elements(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const auto token = static_cast<std::size_t>(tokens.data<std::int32_t>()[row]);
          const auto at = static_cast<std::size_t>(row);
          if (is_widened) {
            simd::widen_rows(1, C, {table.data<Bf16>() + token * C, C},
                             {y.data<float>() + at * C, C});
          } else {
            std::memcpy(to + at * row_bytes, from + token * row_bytes, row_bytes);
          }
        }
      });
}

// Threads take columns, not rows: two rows may have the same token, two columns never meet.
void embedding_part_backward(Run& run, std::int64_t first, Tensor tokens, Tensor dy,
                             Tensor dtable) {
  const std::int64_t C = dtable.dim(1);
  run.threads().run_chunked(C, kColumnsPerTask, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(ScatterAddColumns)
    (tokens.data<std::int32_t>(), dy, begin, end, first, dtable.dim(0), dtable.data<float>());
  });
}

void embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable) {
  embedding_part_backward(run, 0, tokens, dy, dtable);
}

void position_embedding_forward(Run& run, Tensor positions, Tensor table, Tensor y) {
  const std::int32_t* at = position_data(positions);
  run.threads().run_chunked(y.shape().num_rows(), kRowsPerTask,
                            [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t row = begin; row < end; ++row) {
                                const std::int64_t position = position_of(at, row, y.dim(1));
                                HWY_DYNAMIC_DISPATCH(AddRows)(table, position, 1, y, row);
                              }
                            });
}

void position_embedding_backward(Run& run, Tensor positions, Tensor dy, Tensor dtable) {
  const std::int64_t steps = dy.dim(1);
  // Documents of one row share positions, so threads take columns here too.
  if (positions.defined()) return embedding_backward(run, positions, dy, dtable);
  run.threads().run_chunked(steps, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = 0; b < dy.dim(0); ++b) {
      HWY_DYNAMIC_DISPATCH(AddRows)(dy, b * steps + begin, end - begin, dtable, begin);
    }
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
