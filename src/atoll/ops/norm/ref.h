#pragma once

// The norms as their definitions say, for any storage of activations, in its compute type.

#include <cmath>

#include "atoll/ops/norm/norm.h"
#include "atoll/ops/storage.h"
#include "atoll/tensor/tensor.h"

namespace atl::ops::ref {

/// y = x * rstd * weight; see ops/norm/norm.h.
template <typename T>
void rms_norm_forward(const RmsScale& scale, Tensor x, Tensor weight, Tensor y, Tensor rstd) {
  using A = Compute<T>;
  const auto offset = static_cast<A>(scale.weight_offset);
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    A sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += widen(x_row[c]) * widen(x_row[c]);
    const A r = 1 / std::sqrt(sum / static_cast<A>(C) + static_cast<A>(scale.eps));
    rstd.data<A>()[row] = r;
    for (std::int64_t c = 0; c < C; ++c) {
      y.data<T>()[row * C + c] =
          narrow<T>(widen(x_row[c]) * r * (offset + widen(weight.data<T>()[c])));
    }
  }
}

/// Element `at` of what is added to a gradient; undefined: 0.
template <typename T>
Compute<T> residual_at(const Tensor& dresidual, std::int64_t at) {
  return dresidual.defined() ? widen(dresidual.data<T>()[at]) : Compute<T>{0};
}

/// With xhat = x * rstd and g = dy * (offset + weight): dx = rstd * (g - xhat * mean(g * xhat)) [+
/// dresidual].
template <typename T>
void rms_norm_backward_input(const RmsScale& scale, Tensor x, Tensor weight, Tensor rstd, Tensor dy,
                             Tensor dx, Tensor dresidual = {}) {
  using A = Compute<T>;
  const auto offset = static_cast<A>(scale.weight_offset);
  const std::int64_t C = x.dim(-1);
  const T* w = weight.data<T>();
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    const T* dy_row = dy.data<T>() + row * C;
    const A r = rstd.data<A>()[row];
    A sum = 0;
    for (std::int64_t c = 0; c < C; ++c)
      sum += widen(dy_row[c]) * (offset + widen(w[c])) * widen(x_row[c]) * r;
    const A mean_gx = sum / static_cast<A>(C);
    for (std::int64_t c = 0; c < C; ++c) {
      dx.data<T>()[row * C + c] = narrow<T>(
          r * (widen(dy_row[c]) * (offset + widen(w[c])) - widen(x_row[c]) * r * mean_gx) +
          residual_at<T>(dresidual, row * C + c));
    }
  }
}

/// dweight += sum over rows of dy * x * rstd.
template <typename T>
void rms_norm_backward_weight(Tensor x, Tensor rstd, Tensor dy, Tensor dweight) {
  using A = Compute<T>;
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    for (std::int64_t c = 0; c < C; ++c) {
      dweight.data<A>()[c] +=
          widen(dy.data<T>()[row * C + c]) * widen(x.data<T>()[row * C + c]) * rstd.data<A>()[row];
    }
  }
}

/// y = (x - mean) * rstd * weight + bias; see ops/norm/norm.h.
template <typename T>
void layer_norm_forward(double eps, Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor mean,
                        Tensor rstd) {
  using A = Compute<T>;
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    A sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += widen(x_row[c]);
    const A m = sum / static_cast<A>(C);
    A square = 0;
    for (std::int64_t c = 0; c < C; ++c) square += (widen(x_row[c]) - m) * (widen(x_row[c]) - m);
    const A r = 1 / std::sqrt(square / static_cast<A>(C) + static_cast<A>(eps));
    mean.data<A>()[row] = m;
    rstd.data<A>()[row] = r;
    for (std::int64_t c = 0; c < C; ++c) {
      y.data<T>()[row * C + c] = narrow<T>((widen(x_row[c]) - m) * r * widen(weight.data<T>()[c]) +
                                           widen(bias.data<T>()[c]));
    }
  }
}

/// With xhat = (x - mean) * rstd and g = dy * weight:
/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) [+ dresidual].
template <typename T>
void layer_norm_backward_input(Tensor x, Tensor weight, Tensor mean, Tensor rstd, Tensor dy,
                               Tensor dx, Tensor dresidual = {}) {
  using A = Compute<T>;
  const std::int64_t C = x.dim(-1);
  const T* w = weight.data<T>();
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const T* x_row = x.data<T>() + row * C;
    const T* dy_row = dy.data<T>() + row * C;
    const A m = mean.data<A>()[row];
    const A r = rstd.data<A>()[row];
    A sum_g = 0;
    A sum_gx = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      sum_g += widen(dy_row[c]) * widen(w[c]);
      sum_gx += widen(dy_row[c]) * widen(w[c]) * (widen(x_row[c]) - m) * r;
    }
    const A mean_g = sum_g / static_cast<A>(C);
    const A mean_gx = sum_gx / static_cast<A>(C);
    for (std::int64_t c = 0; c < C; ++c) {
      dx.data<T>()[row * C + c] = narrow<T>(
          r * (widen(dy_row[c]) * widen(w[c]) - mean_g - (widen(x_row[c]) - m) * r * mean_gx) +
          residual_at<T>(dresidual, row * C + c));
    }
  }
}

/// dweight += sum over rows of dy * xhat; dbias += sum over rows of dy.
template <typename T>
void layer_norm_backward_weight(Tensor x, Tensor mean, Tensor rstd, Tensor dy, Tensor dweight,
                                Tensor dbias) {
  using A = Compute<T>;
  const std::int64_t C = x.dim(-1);
  for (std::int64_t row = 0; row < x.shape().num_rows(); ++row) {
    const A m = mean.data<A>()[row];
    const A r = rstd.data<A>()[row];
    for (std::int64_t c = 0; c < C; ++c) {
      const A g = widen(dy.data<T>()[row * C + c]);
      dweight.data<A>()[c] += g * (widen(x.data<T>()[row * C + c]) - m) * r;
      dbias.data<A>()[c] += g;
    }
  }
}

}  // namespace atl::ops::ref
