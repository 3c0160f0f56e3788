#pragma once

// Checked calls of ops/fp8/fp8.h, as their implementations see them.

#include "atoll/ops/fp8/fp8.h"
#include "atoll/ops/implementations.h"

namespace atl::ops {

/// See ops::round_to_fp8.
struct RoundToFp8Args {
  Tensor x;  ///< bf16
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool transposed = false;
  Fp8Matrix out;
};

/// See ops::matmul_fp8.
struct MatmulFp8Args {
  Fp8Matrix a;  ///< (m, k)
  Fp8Matrix b;  ///< (n, k)
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Tensor c;
  Tensor bias;
  Fp8Sums sums = Fp8Sums::kExact;
  bool accumulate = false;
  Tensor residual;
};

}  // namespace atl::ops
