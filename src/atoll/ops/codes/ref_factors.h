#pragma once

// Factors of low rank, an element at a time: ops/codes/factors.h.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "atoll/ops/codes/factors.h"
#include "atoll/ops/codes/ref.h"

namespace atl::ops::ref {

/// A matrix and its factors.
struct FactorViews {
  std::int64_t rows, cols;
  float *m, *p, *q, *residual;
};

/// Calls each(views, number) for each matrix.
template <typename Each>
void for_matrices(const Factors& a, Each&& each) {
  for (std::int64_t i = 0; i < a.matrices.dim(0); ++i) {
    const std::int64_t* row = a.matrices.data<std::int64_t>() + i * kFactorColumns;
    each(
        FactorViews{
            row[kFactorRows], row[kFactorCols], a.m.data<float>() + row[kFactorBegin] - a.m_first,
            a.p.data<float>() + row[kFactorP], a.q.data<float>() + row[kFactorQ],
            a.residual.defined() ? a.residual.data<float>() + row[kFactorResidual] : nullptr},
        i);
  }
}

/// Over eight columns, then the columns, then the rest.
inline double dot(const float* a, const float* b, std::int64_t n) {
  std::array<double, 8> columns = {};
  const std::int64_t whole = n / 8 * 8;
  for (std::int64_t i = 0; i < whole; ++i) {
    columns[static_cast<std::size_t>(i % 8)] +=
        static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  double sum = 0;
  for (const double column : columns) sum += column;
  for (std::int64_t i = whole; i < n; ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

inline void project_rows(const Factors& a) {
  for_matrices(a, [&](const FactorViews& x, std::int64_t) {
    for (std::int64_t i = 0; i < x.rows * x.cols && x.residual != nullptr; ++i)
      x.m[i] += x.residual[i];
    for (std::int64_t row = 0; row < x.rows; ++row) {
      for (std::int64_t k = 0; k < a.rank; ++k) {
        x.p[k * x.rows + row] =
            static_cast<float>(dot(x.m + row * x.cols, x.q + k * x.cols, x.cols));
      }
    }
  });
}

inline void project_columns(const Factors& a, const Tensor& flags) {
  for_matrices(a, [&](const FactorViews& x, std::int64_t number) {
    for (std::int64_t k = 0; k < a.rank; ++k) {
      for (std::int64_t j = 0; j < x.cols; ++j) {
        float sum = 0;
        for (std::int64_t i = 0; i < x.rows && flags.data<std::int32_t>()[number] != 0; ++i) {
          sum += x.p[k * x.rows + i] * x.m[i * x.cols + j];
        }
        x.q[k * x.cols + j] = sum;
      }
    }
  });
}

inline float product_at(const Factors& a, const FactorViews& x, std::int64_t i) {
  float sum = 0;
  for (std::int64_t k = 0; k < a.rank; ++k) {
    sum += x.p[k * x.rows + i / x.cols] * x.q[k * x.cols + i % x.cols];
  }
  return sum;
}

inline void keep_residual(const Factors& a, const Tensor& flags) {
  for_matrices(a, [&](const FactorViews& x, std::int64_t number) {
    if (x.residual == nullptr || flags.data<std::int32_t>()[number] == 0) return;
    const std::int64_t n = x.rows * x.cols;
    for (std::int64_t i = 0; i < n; ++i) x.residual[i] = x.m[i] - product_at(a, x, i);
    for (std::int64_t i = 0; i < n; i += kCodeBlock) {
      round_residual({x.residual + i, static_cast<std::size_t>(std::min(kCodeBlock, n - i))});
    }
  });
}

inline void restore_product(const Factors& a, const Tensor& flags) {
  for_matrices(a, [&](const FactorViews& x, std::int64_t number) {
    const bool is_finite = flags.data<std::int32_t>()[number] != 0;
    for (std::int64_t i = 0; i < x.rows * x.cols; ++i) {
      x.m[i] = is_finite ? product_at(a, x, i) : std::numeric_limits<float>::quiet_NaN();
    }
  });
}

inline void orthogonalise(const Orthogonalise& a) {
  constexpr float kEpsilon = 1e-20F;  // a vector of zeros stays one
  for (std::int64_t i = 0; i < a.matrices.dim(0); ++i) {
    const std::int64_t* row = a.matrices.data<std::int64_t>() + i * kFactorColumns;
    const std::int64_t n = row[a.n];
    const float* from = a.from.data<float>() + row[a.at];
    bool is_finite = !a.given.defined() || a.given.data<std::int32_t>()[i] != 0;
    for (std::int64_t j = 0; j < a.rank * n; ++j) is_finite = is_finite && std::isfinite(from[j]);
    a.made.data<std::int32_t>()[i] = is_finite ? 1 : 0;
    if (!is_finite || !a.to.defined()) continue;
    float* to = a.to.data<float>() + row[a.at];
    if (to != from) std::copy_n(from, a.rank * n, to);
    for (std::int64_t k = 0; k < a.rank; ++k) {
      float* own = to + k * n;
      for (std::int64_t before = 0; before < k; ++before) {
        const auto along = static_cast<float>(dot(own, to + before * n, n));
        for (std::int64_t j = 0; j < n; ++j) own[j] -= along * to[before * n + j];
      }
      const auto length = static_cast<float>(std::sqrt(dot(own, own, n)));
      for (std::int64_t j = 0; j < n; ++j) own[j] /= length + kEpsilon;
    }
  }
}

}  // namespace atl::ops::ref
