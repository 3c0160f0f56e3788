#pragma once

// Several low-rank adapters of one model in a step: some rows go through one, others through
// another, most through none.

#include <cstdint>
#include <vector>

#include "atoll/tensor/tensor.h"

namespace atl::nn {

/// An adapter's part in one Linear, ready for products: y += (x A^T) B^T. Undefined where the
/// adapter leaves the Linear as it is.
struct ServedFactors {
  Tensor a;  ///< (r, in) f32
  Tensor b;  ///< (out, r) f32, with the adapter's scale in it
};

/// Rows of a step that one adapter is for.
struct AdapterRows {
  std::int64_t begin = 0;  ///< of (rows, C)
  std::int64_t count = 0;
  std::size_t adapter = 0;  ///< a place among the adapters
};

/// What the Linears of a model read in each step.
struct ServedAdapters {
  std::int64_t max_rank = 0;  ///< r of any factors
  std::vector<AdapterRows> rows;
};

}  // namespace atl::nn
