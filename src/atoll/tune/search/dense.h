#pragma once

// Dense linear algebra for some hundred points. Inner loops run along rows, so that the compiler
// makes vector code of them without changing the order of a sum.

#include <cstddef>
#include <vector>

namespace atl::tune {

/// A matrix by rows.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> data;

  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), data(r * c) {}
  double* row(std::size_t i) { return data.data() + i * columns; }
  const double* row(std::size_t i) const { return data.data() + i * columns; }
  double& at(std::size_t i, std::size_t j) { return data[i * columns + j]; }
  double at(std::size_t i, std::size_t j) const { return data[i * columns + j]; }
};

/// The Cholesky factor of a symmetric matrix A = L Lᵀ.
class Cholesky {
 public:
  /// Takes A (n, n), of which the upper triangle is read. Adds to the diagonal, from 1e-10 of its
  /// mean on, what A lacks to be positive definite by rounding.
  explicit Cholesky(Matrix a);

  std::size_t size() const { return upper_.rows; }
  /// log det A.
  double log_determinant() const;
  /// b := L⁻¹ b.
  void solve_lower(std::vector<double>& b) const;
  /// b := L⁻ᵀ b.
  void solve_upper(std::vector<double>& b) const;
  /// The columns of b (n, m), each as above.
  void solve_lower(Matrix& b) const;
  /// The upper triangle of A⁻¹; the rest is zero.
  Matrix inverse() const;
  /// Lᵢⱼ.
  double lower(std::size_t i, std::size_t j) const { return upper_.at(j, i); }

 private:
  bool factor();

  Matrix upper_;  // Lᵀ, so that columns of L are rows here
};

/// Eigenvalues and orthonormal eigenvectors (columns of `vectors`) of a symmetric matrix, by Jacobi
/// rotations; for some tens of rows.
struct Eigen {
  std::vector<double> values;
  Matrix vectors;
};
Eigen eigen_of(Matrix a);

}  // namespace atl::tune
