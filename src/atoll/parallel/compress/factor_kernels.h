#pragma once

#include <vector>

#include "atoll/ops/codes/factors.h"
#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// The steps of PowerSGD for the matrices of one bucket in a GPU's memory. The kernels give the
/// same bits as the CPU code in reduction_powersgd.cpp. The host does not wait to learn whether
/// factors are finite: the flags for that stay on the GPU.
class FactorKernels {
 public:
  /// The places of one matrix: see ops::FactorColumn.
  struct Matrix {
    std::int64_t begin = 0, rows = 0, cols = 0, residual_at = 0, p_at = 0, q_at = 0;
  };
  /// `rank`: of the factors. `first`: the first element of the bucket in the flat vector.
  FactorKernels(std::int64_t rank, std::int64_t first, std::vector<Matrix> matrices);

  void request(MemoryPlan& plan);
  /// `p`: the bucket's packed vector with P. `q` and `q_sum`: the vectors of Q of all buckets, of
  /// the last step and of this one. `residual`: of all matrices; undefined: there is no residual.
  void bind(const Arena& arena, const Tensor& p, const Tensor& q, const Tensor& q_sum,
            const Tensor& residual);

  /// Adds the residual to the gradients M, and sets p to P = M Q, with the Q of the last step.
  void project(Run& run, const Tensor& gradients) const;
  /// To be called when p is the sum of all ranks' P: makes the columns of P orthonormal, sets q_sum
  /// to this rank's Q = M^T P, and the residual to M - P Q^T.
  void leave_residual(Run& run, const Tensor& gradients) const;
  /// To be called when q_sum is the sum of all ranks' Q: sets the gradients to P Q^T, or NaN where
  /// a factor is not finite, and q to the orthonormal Q with which the next step begins.
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
