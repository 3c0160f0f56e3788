#pragma once

#include <vector>

#include "atoll/ops/codes/factors.h"
#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// What PowerSGD does with the matrices of a bucket that lie in a GPU's memory: its steps as
/// kernels, in the bits of reduction_powersgd.cpp's threads. Whether factors are finite stays on
/// the GPU.
class FactorKernels {
 public:
  /// Of one matrix: see ops::FactorColumn.
  struct Matrix {
    std::int64_t begin = 0, rows = 0, cols = 0, residual_at = 0, p_at = 0, q_at = 0;
  };
  /// The matrices of a bucket whose gradients begin with element `first` of the flat vector.
  FactorKernels(std::int64_t rank, std::int64_t first, std::vector<Matrix> matrices);

  void request(MemoryPlan& plan);
  /// `p`: the bucket's first sum; `q` and `q_sum`: of all buckets; `residual`: may be undefined.
  void bind(const Arena& arena, const Tensor& p, const Tensor& q, const Tensor& q_sum,
            const Tensor& residual);

  /// P of this rank's gradient and residual, with the Q of the last step.
  void project(Run& run, const Tensor& gradients) const;
  /// With the sum of all P: this rank's Q in q_sum, and the residual of the two.
  void leave_residual(Run& run, const Tensor& gradients) const;
  /// With the sum of all Q: the gradients, NaN where a factor is not finite, and Q of the next
  /// step.
  void restore(Run& run, const Tensor& gradients) const;

 private:
  ops::Factors factors(const Tensor& gradients, const Tensor& q) const;
  Tensor flags(int which) const;

  std::int64_t rank_, first_;
  std::vector<Matrix> matrices_;
  int table_request_ = -1, flags_request_ = -1;
  Tensor table_, flags_;
  Tensor p_, q_, q_sum_, residual_;
};

}  // namespace atl::parallel
