#include "atoll/ops/cpu/embedding.h"

#include <algorithm>

#include "atoll/ops/documents.h"

// clang-format off
#include "atoll/ops/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/embedding.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

void AddTo(const float* x, std::size_t n, float* sum) {
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(sum + i), lanes.load(x + i)), sum + i);
  });
}

// Adds columns [begin, end) of each row of x to those of the table row of its position in its
// document, in row order.
void ScatterAddPositions(const std::int32_t* starts, const float* x, std::size_t rows,
                         std::size_t rows_per_sequence, std::size_t C, std::size_t begin,
                         std::size_t end, float* table) {
  for (std::size_t row = 0; row < rows; ++row) {
    const auto position =
        row % rows_per_sequence - static_cast<std::size_t>(starts[row]);  // never below 0
    AddTo(x + row * C + begin, end - begin, table + position * C + begin);
  }
}

// Adds columns [begin, end) of each row of x to those of table row tokens[row], in row order.
void ScatterAddColumns(const std::int32_t* tokens, const float* x, std::size_t rows, std::size_t C,
                       std::size_t begin, std::size_t end, float* table) {
  for (std::size_t row = 0; row < rows; ++row) {
    const auto token = static_cast<std::size_t>(tokens[row]);
    AddTo(x + row * C + begin, end - begin, table + token * C + begin);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(AddTo);
HWY_EXPORT(ScatterAddColumns);
HWY_EXPORT(ScatterAddPositions);

constexpr std::int64_t kRowsPerTask = 16;
// Four cache lines: narrower slices would waste what the memory fetches beside them.
constexpr std::int64_t kColumnsPerTask = 64;

}  // namespace

void embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y) {
  const std::int64_t C = table.dim(1);
  run.threads().run_chunked(
      tokens.num_elements(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t token = tokens.data<std::int32_t>()[row];
          std::copy_n(table.data<float>() + token * C, C, y.data<float>() + row * C);
        }
      });
}

// Threads take columns, not rows: two rows may have the same token, two columns never meet.
void embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable) {
  const std::int64_t C = dtable.dim(1);
  run.threads().run_chunked(C, kColumnsPerTask, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(ScatterAddColumns)
    (tokens.data<std::int32_t>(), dy.data<float>(), static_cast<std::size_t>(tokens.num_elements()),
     static_cast<std::size_t>(C), static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
     dtable.data<float>());
  });
}

void position_embedding_forward(Run& run, std::int64_t first_position, Tensor document_start,
                                Tensor table, Tensor y) {
  const std::int64_t C = table.dim(1);
  const std::int32_t* starts = document_starts(document_start);
  run.threads().run_chunked(y.shape().num_rows(), kRowsPerTask,
                            [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t row = begin; row < end; ++row) {
                                const std::int64_t position =
                                    first_position + position_in_document(starts, row, y.dim(1));
                                HWY_DYNAMIC_DISPATCH(AddTo)
                                (table.data<float>() + position * C, static_cast<std::size_t>(C),
                                 y.data<float>() + row * C);
                              }
                            });
}

void position_embedding_backward(Run& run, Tensor document_start, Tensor dy, Tensor dtable) {
  const std::int64_t C = dtable.dim(1);
  const std::int64_t steps = dy.dim(1);
  if (document_start.defined()) {
    // Documents of one row share positions, so threads take columns here too.
    run.threads().run_chunked(C, kColumnsPerTask, [&](std::int64_t begin, std::int64_t end) {
      HWY_DYNAMIC_DISPATCH(ScatterAddPositions)
      (document_start.data<std::int32_t>(), dy.data<float>(),
       static_cast<std::size_t>(dy.shape().num_rows()), static_cast<std::size_t>(steps),
       static_cast<std::size_t>(C), static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
       dtable.data<float>());
    });
    return;
  }
  run.threads().run_chunked(steps, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = 0; b < dy.dim(0); ++b) {
      HWY_DYNAMIC_DISPATCH(AddTo)
      (dy.data<float>() + (b * steps + begin) * C, static_cast<std::size_t>((end - begin) * C),
       dtable.data<float>() + begin * C);
    }
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
