#include "atoll/tune/search/dense.h"

#include <cmath>

#include "atoll/base/check.h"

namespace atl::tune {

Cholesky::Cholesky(Matrix a) : upper_(std::move(a)) {
  const std::size_t n = size();
  const Matrix original = upper_;
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) mean += original.at(i, i) / static_cast<double>(n);
  for (double jitter = 1e-10 * mean; !factor(); jitter *= 10) {
    ATOLL_CHECK(jitter < mean, "a matrix of {} rows is not positive definite", n);
    upper_ = original;
    for (std::size_t i = 0; i < n; ++i) upper_.at(i, i) += jitter;
  }
}

bool Cholesky::factor() {
  const std::size_t n = size();
  for (std::size_t j = 0; j < n; ++j) {
    double* const pivot = upper_.row(j);
    if (!(pivot[j] > 0)) return false;
    const double root = std::sqrt(pivot[j]);
    const double inverse = 1 / root;
    for (std::size_t k = j; k < n; ++k) pivot[k] *= inverse;
    for (std::size_t i = j + 1; i < n; ++i) {
      double* const row = upper_.row(i);
      const double factor = pivot[i];
      for (std::size_t k = i; k < n; ++k) row[k] -= factor * pivot[k];
    }
  }
  return true;
}

double Cholesky::log_determinant() const {
  double sum = 0;
  for (std::size_t i = 0; i < size(); ++i) sum += 2 * std::log(upper_.at(i, i));
  return sum;
}

void Cholesky::solve_lower(std::vector<double>& b) const {
  const std::size_t n = size();
  for (std::size_t j = 0; j < n; ++j) {
    const double* const row = upper_.row(j);
    const double x = b[j] / row[j];
    b[j] = x;
    for (std::size_t k = j + 1; k < n; ++k) b[k] -= row[k] * x;
  }
}

void Cholesky::solve_upper(std::vector<double>& b) const {
  for (std::size_t j = size(); j-- > 0;) {
    const double* const row = upper_.row(j);
    // Four sums, or each addition would wait for the one before.
    double sums[4] = {0, 0, 0, 0};
    std::size_t k = j + 1;
    for (; k + 4 <= size(); k += 4) {
      for (std::size_t s = 0; s < 4; ++s) sums[s] += row[k + s] * b[k + s];
    }
    for (; k < size(); ++k) sums[0] += row[k] * b[k];
    b[j] = (b[j] - (sums[0] + sums[1] + sums[2] + sums[3])) / row[j];
  }
}

void Cholesky::solve_lower(Matrix& b) const {
  const std::size_t n = size(), m = b.columns;
  for (std::size_t j = 0; j < n; ++j) {
    const double* const row = upper_.row(j);
    double* const solved = b.row(j);
    const double inverse = 1 / row[j];
    for (std::size_t c = 0; c < m; ++c) solved[c] *= inverse;
    for (std::size_t k = j + 1; k < n; ++k) {
      double* const rest = b.row(k);
      const double factor = row[k];
      for (std::size_t c = 0; c < m; ++c) rest[c] -= factor * solved[c];
    }
  }
}

Matrix Cholesky::inverse() const {
  const std::size_t n = size();
  // V = L⁻¹, lower triangular; A⁻¹ = Vᵀ V.
  Matrix v(n, n);
  for (std::size_t i = 0; i < n; ++i) v.at(i, i) = 1;
  for (std::size_t j = 0; j < n; ++j) {
    const double* const row = upper_.row(j);
    double* const solved = v.row(j);
    const double inverse = 1 / row[j];
    for (std::size_t c = 0; c <= j; ++c) solved[c] *= inverse;
    for (std::size_t k = j + 1; k < n; ++k) {
      double* const rest = v.row(k);
      const double factor = row[k];
      for (std::size_t c = 0; c <= j; ++c) rest[c] -= factor * solved[c];
    }
  }
  Matrix result(n, n);
  for (std::size_t k = 0; k < n; ++k) {
    const double* const row = v.row(k);
    for (std::size_t i = 0; i <= k; ++i) {
      double* const sum = result.row(i);
      const double factor = row[i];
      for (std::size_t j = i; j <= k; ++j) sum[j] += factor * row[j];
    }
  }
  return result;
}

Eigen eigen_of(Matrix a) {
  const std::size_t n = a.rows;
  Eigen eigen = {.values = std::vector<double>(n), .vectors = Matrix(n, n)};
  for (std::size_t i = 0; i < n; ++i) eigen.vectors.at(i, i) = 1;
  constexpr int kMaxSweeps = 60;  // six do, of matrices that are not made up
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double off = 0, on = 0;
    for (std::size_t i = 0; i < n; ++i) {
      on += a.at(i, i) * a.at(i, i);
      for (std::size_t j = i + 1; j < n; ++j) off += a.at(i, j) * a.at(i, j);
    }
    if (off <= 1e-30 * on) break;
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a.at(p, q) == 0) continue;
        const double theta = (a.at(q, q) - a.at(p, p)) / (2 * a.at(p, q));
        const double sign = theta >= 0 ? 1 : -1;
        const double t = sign / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a.at(k, p), y = a.at(k, q);
          a.at(k, p) = c * x - s * y;
          a.at(k, q) = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a.at(p, k), y = a.at(q, k);
          a.at(p, k) = c * x - s * y;
          a.at(q, k) = s * x + c * y;
          const double v = eigen.vectors.at(k, p), w = eigen.vectors.at(k, q);
          eigen.vectors.at(k, p) = c * v - s * w;
          eigen.vectors.at(k, q) = s * v + c * w;
        }
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) eigen.values[i] = a.at(i, i);
  return eigen;
}

}  // namespace atl::tune
