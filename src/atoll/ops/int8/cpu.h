#pragma once

#include <cstddef>
#include <cstdint>

#include "atoll/ops/int8/int8.h"

namespace atl::ops::cpu {

/// What a tile reads: x and w at its first row, with their strides.
struct Int8Rows {
  const float* x;
  const std::int8_t* values;
  const float* scales;
  std::size_t k;
  std::size_t groups;
};

/// Rows of x that a weight is read for once: more are served by widening it first.
constexpr std::int64_t kInt8FewRows = 8;

/// y = x W^T [+ bias] for at most kInt8FewRows rows of x, (M, K); tensors are in host memory.
void int8_few_rows(Run& run, const Tensor& x, const Int8Matrix& w, const Tensor& y,
                   const Tensor& bias);

/// out = rows [begin, end) of w.  out: f32 (end - begin, K).
void int8_widen(Run& run, const Int8Matrix& w, std::int64_t begin, std::int64_t end,
                const Tensor& out);

}  // namespace atl::ops::cpu
