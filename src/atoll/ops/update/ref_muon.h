#pragma once

// The elementwise pieces of Muon, in any float type.

#include "atoll/ops/update/muon.h"
#include "atoll/ops/update/ref_update_target.h"

namespace atl::ops::ref {

/// See ops/update/muon.h.
template <typename T>
void muon_momentum(const MuonMomentum& numbers, Tensor grad, Tensor m, Tensor direction) {
  const T momentum = static_cast<T>(numbers.momentum);
  const T rest = static_cast<T>(1 - numbers.momentum);
  for (std::int64_t i = 0; i < m.num_elements(); ++i) {
    T& m_i = m.data<T>()[i];
    const T g = grad.data<T>()[i] * static_cast<T>(numbers.grad_scale);
    m_i = momentum * m_i + rest * g;
    direction.data<T>()[i] = numbers.nesterov ? momentum * m_i + rest * g : m_i;
  }
}

/// y = alpha x + beta y.
template <typename T>
void combine(double alpha, Tensor x, double beta, Tensor y) {
  for (std::int64_t i = 0; i < y.num_elements(); ++i) {
    T& y_i = y.data<T>()[i];
    y_i = static_cast<T>(alpha) * x.data<T>()[i] + static_cast<T>(beta) * y_i;
  }
}

/// See ops/update/muon.h.
template <typename T>
void apply_direction(double step_size, double decay, const UpdateTarget& target, Tensor direction) {
  update_each<T>(target, [&](std::int64_t i, T p) {
    return p - (static_cast<T>(step_size) * direction.data<T>()[i] + static_cast<T>(decay) * p);
  });
}

}  // namespace atl::ops::ref
