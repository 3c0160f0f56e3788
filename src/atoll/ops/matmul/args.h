#pragma once

// A checked matmul call, as its implementations see it.

#include "atoll/ops/implementations.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::ops {

/// The sizes of c (M, N) = op(a) (M, K) op(b) (K, N).
struct MatmulShape {
  Transpose transpose = Transpose::kNN;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;

  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};

/// Operands that fit each other; bias and residual may be undefined.
struct MatmulArgs {
  MatmulShape shape;
  Tensor a;
  Tensor b;
  Tensor c;
  Tensor bias;
  bool accumulate = false;
  // Only in a GPU's memory, and undefined elsewhere; of c's dtype, (M, N).
  Tensor residual = {};  ///< is added
  Tensor hidden = {};    ///< is the product with its bias, and c GELU of it, by tanh

  /// Are all operands of this dtype?
  bool all_of(Dtype dtype) const {
    return a.dtype() == dtype && b.dtype() == dtype && c.dtype() == dtype &&
           (!bias.defined() || bias.dtype() == dtype);
  }
};

}  // namespace atl::ops
