#include "atoll/parallel/compress/factor_kernels.h"

#include <algorithm>

#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

// For each matrix, whether these are finite: the sum of all P; that and this rank's Q; the sum of
// all P and the sum of all Q.
enum Flags { kP, kOwnQ, kQ, kNumFlags };

}  // namespace

FactorKernels::FactorKernels(std::int64_t rank, std::int64_t first, std::vector<Matrix> matrices)
    : rank_(rank), first_(first), matrices_(std::move(matrices)) {}

void FactorKernels::request(MemoryPlan& plan) {
  const std::int64_t count = std::ssize(matrices_);
  table_request_ = plan.request_forever("places of factors", "codes",
                                        Spec{Dtype::kI64, {count, ops::kFactorColumns}}.bytes());
  flags_request_ = plan.request_forever("whether factors are finite", "codes",
                                        Spec{Dtype::kI32, {kNumFlags, count}}.bytes());
}

void FactorKernels::bind(const Arena& arena, const Tensor& p, const Tensor& q, const Tensor& q_sum,
                         const Tensor& residual) {
  const std::int64_t count = std::ssize(matrices_);
  p_ = p, q_ = q, q_sum_ = q_sum, residual_ = residual;
  table_ = arena.tensor(table_request_, {Dtype::kI64, {count, ops::kFactorColumns}});
  flags_ = arena.tensor(flags_request_, {Dtype::kI32, {kNumFlags, count}});
  write_on_host<std::int64_t>(table_, [&](std::span<std::int64_t> to) {
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const std::span<std::int64_t> row = to.subspan(i * ops::kFactorColumns, ops::kFactorColumns);
      row[ops::kFactorBegin] = matrices_[i].begin;
      row[ops::kFactorRows] = matrices_[i].rows;
      row[ops::kFactorCols] = matrices_[i].cols;
      row[ops::kFactorResidual] = matrices_[i].residual_at;
      row[ops::kFactorP] = matrices_[i].p_at;
      row[ops::kFactorQ] = matrices_[i].q_at;
    }
  });
}

ops::Factors FactorKernels::factors(const Tensor& gradients, const Tensor& q) const {
  ops::Factors all = {.matrices = table_,
                      .rank = rank_,
                      .m = gradients,
                      .m_first = first_,
                      .p = p_,
                      .q = q,
                      .residual = residual_};
  for (const Matrix& matrix : matrices_) {
    all.most_rows = std::max(all.most_rows, matrix.rows);
    all.most_cols = std::max(all.most_cols, matrix.cols);
    all.most_elements = std::max(all.most_elements, matrix.rows * matrix.cols);
  }
  return all;
}

Tensor FactorKernels::flags(int which) const {
  return flags_.rows(which, which + 1).reshaped({std::ssize(matrices_)});
}

void FactorKernels::project(Run& run, const Tensor& gradients) const {
  if (matrices_.empty()) return;
  ops::project_rows(run, factors(gradients, q_));
}

void FactorKernels::leave_residual(Run& run, const Tensor& gradients) const {
  if (matrices_.empty()) return;
  ops::orthogonalise(run, {.matrices = table_,
                           .rank = rank_,
                           .at = ops::kFactorP,
                           .n = ops::kFactorRows,
                           .from = p_,
                           .to = p_,
                           .made = flags(kP)});
  const ops::Factors all = factors(gradients, q_sum_);
  ops::project_columns(run, all, flags(kP));
  if (!residual_.defined()) return;
  ops::orthogonalise(run, {.matrices = table_,
                           .rank = rank_,
                           .at = ops::kFactorQ,
                           .n = ops::kFactorCols,
                           .from = q_sum_,
                           .given = flags(kP),
                           .made = flags(kOwnQ)});
  ops::keep_residual(run, all, flags(kOwnQ));
}

void FactorKernels::restore(Run& run, const Tensor& gradients) const {
  if (matrices_.empty()) return;
  ops::orthogonalise(run, {.matrices = table_,
                           .rank = rank_,
                           .at = ops::kFactorQ,
                           .n = ops::kFactorCols,
                           .from = q_sum_,
                           .to = q_,
                           .given = flags(kP),
                           .made = flags(kQ)});
  ops::restore_product(run, factors(gradients, q_sum_), flags(kQ));
}

}  // namespace atl::parallel
