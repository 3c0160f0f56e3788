#pragma once

#include <cstdint>
#include <span>

#include "atoll/ops/run.h"
#include "atoll/tensor/tensor.h"

namespace atl::ops {

/// Rows [begin, begin + count) of x and y, and the factors for them.
struct LowRankRows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  Tensor a;  ///< (r, in) f32
  Tensor b;  ///< (out, r) f32
};

/// y += (x A^T) B^T, for each part with its own A and B (Hu et al. 2021), all parts together: one
/// product of few rows after the other would wait for its threads more than it computes. A row's
/// bits depend on that row and its factors alone. Needs scratch of x.with_last(the largest r). On a
/// CPU only.
/// x: f32 (R, in)  y: f32 (R, out)
void add_low_rank_rows(Run& run, std::span<const LowRankRows> parts, Tensor x, Tensor y);

}  // namespace atl::ops
