#pragma once

// The activations as their definitions say, for any storage, in its compute type.

#include <cmath>
#include <numbers>

#include "atoll/ops/activation/activation.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

template <typename T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

/// h = silu(gate) * up; see ops/activation/activation.h.
template <typename T>
void swiglu_forward(Tensor gate_up, Tensor h) {
  const std::int64_t F = h.dim(-1);
  for (std::int64_t row = 0; row < h.shape().num_rows(); ++row) {
    const T* gate = gate_up.data<T>() + row * 2 * F;
    const T* up = gate + F;
    for (std::int64_t f = 0; f < F; ++f) {
      const Compute<T> g = widen(gate[f]);
      h.data<T>()[row * F + f] = narrow<T>(g * sigmoid(g) * widen(up[f]));
    }
  }
}

/// With s = sigmoid(gate): dup = dh gate s, dgate = dh up s (1 + gate (1 - s)).
template <typename T>
void swiglu_backward(Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h = {}) {
  const std::int64_t F = dh.dim(-1);
  for (std::int64_t row = 0; row < dh.shape().num_rows(); ++row) {
    for (std::int64_t f = 0; f < F; ++f) {
      const std::int64_t at = row * 2 * F + f;
      const Compute<T> gate = widen(gate_up.data<T>()[at]);
      const Compute<T> up = widen(gate_up.data<T>()[at + F]);
      const Compute<T> s = sigmoid(gate);
      const Compute<T> d = widen(dh.data<T>()[row * F + f]);
      if (h.defined()) h.data<T>()[row * F + f] = narrow<T>(gate * s * up);
      dgate_up.data<T>()[at] = narrow<T>(d * up * s * (1 + gate * (1 - s)));
      dgate_up.data<T>()[at + F] = narrow<T>(d * gate * s);
    }
  }
}

/// gelu(x) and its derivative.
template <typename T>
struct GeluValue {
  T y;
  T slope;
};

template <typename T>
GeluValue<T> gelu(Gelu kind, T x) {
  const T pi = std::numbers::pi_v<T>;
  if (kind == Gelu::kErf) {
    // x Phi(x), with erfc instead of 1 + erf so that no digit of the left tail is lost.
    const T cdf = T(0.5) * std::erfc(-x / std::numbers::sqrt2_v<T>);
    const T density = std::exp(-x * x / 2) / std::sqrt(2 * pi);
    return {x * cdf, cdf + x * density};
  }
  const T k = std::sqrt(2 / pi);
  const T u = k * (x + T(0.044715) * x * x * x);
  const T du = k * (1 + 3 * T(0.044715) * x * x);
  const T t = std::tanh(u);
  return {T(0.5) * x * (1 + t), T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * du};
}

/// h = gelu(gate) * up; see ops/activation/activation.h.
template <typename T>
void geglu_forward(Gelu kind, Tensor gate_up, Tensor h) {
  const std::int64_t F = h.dim(-1);
  for (std::int64_t row = 0; row < h.shape().num_rows(); ++row) {
    const T* gate = gate_up.data<T>() + row * 2 * F;
    for (std::int64_t f = 0; f < F; ++f) {
      h.data<T>()[row * F + f] = narrow<T>(gelu(kind, widen(gate[f])).y * widen(gate[F + f]));
    }
  }
}

/// dup = dh gelu(gate), dgate = dh up gelu'(gate).
template <typename T>
void geglu_backward(Gelu kind, Tensor gate_up, Tensor dh, Tensor dgate_up, Tensor h = {}) {
  const std::int64_t F = dh.dim(-1);
  for (std::int64_t row = 0; row < dh.shape().num_rows(); ++row) {
    for (std::int64_t f = 0; f < F; ++f) {
      const std::int64_t at = row * 2 * F + f;
      const GeluValue<Compute<T>> gate = gelu(kind, widen(gate_up.data<T>()[at]));
      const Compute<T> up = widen(gate_up.data<T>()[at + F]);
      const Compute<T> d = widen(dh.data<T>()[row * F + f]);
      if (h.defined()) h.data<T>()[row * F + f] = narrow<T>(gate.y * up);
      dgate_up.data<T>()[at] = narrow<T>(d * up * gate.slope);
      dgate_up.data<T>()[at + F] = narrow<T>(d * gate.y);
    }
  }
}

/// y = gelu(x); see ops/activation/activation.h.
template <typename T>
void gelu_forward(Gelu kind, Tensor x, Tensor y) {
  for (std::int64_t i = 0; i < x.num_elements(); ++i) {
    y.data<T>()[i] = narrow<T>(gelu(kind, widen(x.data<T>()[i])).y);
  }
}

/// dx = dy * gelu'(x).
template <typename T>
void gelu_backward(Gelu kind, Tensor x, Tensor dy, Tensor dx) {
  for (std::int64_t i = 0; i < x.num_elements(); ++i) {
    const Compute<T> slope = gelu(kind, widen(x.data<T>()[i])).slope;
    dx.data<T>()[i] = narrow<T>(widen(dy.data<T>()[i]) * slope);
  }
}

}  // namespace atl::ops::ref
