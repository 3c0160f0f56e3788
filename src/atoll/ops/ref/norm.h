#pragma once

// The norms as their definitions say, in any float type.

#include <cmath>

#include "atoll/tensor/tensor.h"

namespace atl::ops::ref {

/// y = x * rstd * weight; see ops/norm.h.
template <typename T>
void rms_norm_forward(double eps, Tensor x, Tensor weight, Tensor y, Tensor rstd) {
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    T sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += x_row[c] * x_row[c];
    const T r = 1 / std::sqrt(sum / static_cast<T>(C) + static_cast<T>(eps));
    rstd.data<T>()[row] = r;
    for (std::int64_t c = 0; c < C; ++c) {
      y.data<T>()[row * C + c] = x_row[c] * r * weight.data<T>()[c];
    }
  }
}

/// With xhat = x * rstd and g = dy * weight: dx = rstd * (g - xhat * mean(g * xhat)).
template <typename T>
void rms_norm_backward_input(Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx) {
  const std::int64_t C = x.dim(-1);
  const T* w = weight.data<T>();
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    const T* dy_row = dy.data<T>() + row * C;
    const T r = rstd.data<T>()[row];
    T sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += dy_row[c] * w[c] * x_row[c] * r;
    const T mean_gx = sum / static_cast<T>(C);
    for (std::int64_t c = 0; c < C; ++c) {
      dx.data<T>()[row * C + c] = r * (dy_row[c] * w[c] - x_row[c] * r * mean_gx);
    }
  }
}

/// dweight += sum over rows of dy * x * rstd.
template <typename T>
void rms_norm_backward_weight(Tensor x, Tensor rstd, Tensor dy, Tensor dweight) {
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    for (std::int64_t c = 0; c < C; ++c) {
      dweight.data<T>()[c] +=
          dy.data<T>()[row * C + c] * x.data<T>()[row * C + c] * rstd.data<T>()[row];
    }
  }
}

/// y = (x - mean) * rstd * weight + bias; see ops/norm.h.
template <typename T>
void layer_norm_forward(double eps, Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor mean,
                        Tensor rstd) {
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    T sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += x_row[c];
    const T m = sum / static_cast<T>(C);
    T square = 0;
    for (std::int64_t c = 0; c < C; ++c) square += (x_row[c] - m) * (x_row[c] - m);
    const T r = 1 / std::sqrt(square / static_cast<T>(C) + static_cast<T>(eps));
    mean.data<T>()[row] = m;
    rstd.data<T>()[row] = r;
    for (std::int64_t c = 0; c < C; ++c) {
      y.data<T>()[row * C + c] = (x_row[c] - m) * r * weight.data<T>()[c] + bias.data<T>()[c];
    }
  }
}

/// With xhat = (x - mean) * rstd and g = dy * weight:
/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)).
template <typename T>
void layer_norm_backward_input(Tensor x, Tensor weight, Tensor mean, Tensor rstd, Tensor dy,
                               Tensor dx) {
  const std::int64_t C = x.dim(-1);
  const T* w = weight.data<T>();
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    const T* dy_row = dy.data<T>() + row * C;
    const T m = mean.data<T>()[row];
    const T r = rstd.data<T>()[row];
    T sum_g = 0;
    T sum_gx = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      sum_g += dy_row[c] * w[c];
      sum_gx += dy_row[c] * w[c] * (x_row[c] - m) * r;
    }
    const T mean_g = sum_g / static_cast<T>(C);
    const T mean_gx = sum_gx / static_cast<T>(C);
    for (std::int64_t c = 0; c < C; ++c) {
      dx.data<T>()[row * C + c] = r * (dy_row[c] * w[c] - mean_g - (x_row[c] - m) * r * mean_gx);
    }
  }
}

/// dweight += sum over rows of dy * xhat; dbias += sum over rows of dy.
template <typename T>
void layer_norm_backward_weight(Tensor x, Tensor mean, Tensor rstd, Tensor dy, Tensor dweight,
                                Tensor dbias) {
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T m = mean.data<T>()[row];
    const T r = rstd.data<T>()[row];
    for (std::int64_t c = 0; c < C; ++c) {
      const T g = dy.data<T>()[row * C + c];
      dweight.data<T>()[c] += g * (x.data<T>()[row * C + c] - m) * r;
      dbias.data<T>()[c] += g;
    }
  }
}

}  // namespace atl::ops::ref
