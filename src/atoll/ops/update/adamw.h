#pragma once

#include "atoll/ops/update/update_target.h"

namespace atl::ops {

/// One AdamW update's numbers (Loshchilov & Hutter 2019, algorithm 2, decoupled decay).
struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  ///< 1 for the first update: the bias correction's exponent
  double grad_scale = 1;  ///< multiplies the gradient first: clipping costs no pass of its own
};

/// m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
/// p -= lr (m / (1-b1^step) / (sqrt(v / (1-b2^step)) + eps) + weight_decay p).
/// All are flat and of one length; grad (left as it is), m and v are of the target's compute dtype.
void adamw(Run& run, const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m,
           Tensor v);

}  // namespace atl::ops
