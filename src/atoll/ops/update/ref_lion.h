#pragma once

// Lion as its paper writes it, in any float type.

#include "atoll/ops/update/lion.h"
#include "atoll/ops/update/ref_update_target.h"

namespace atl::ops::ref {

/// See ops/update/lion.h.
template <typename T>
void lion(const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  const T beta1 = static_cast<T>(step.beta1);
  const T beta2 = static_cast<T>(step.beta2);
  const T rest1 = static_cast<T>(1 - step.beta1);
  const T rest2 = static_cast<T>(1 - step.beta2);
  update_each<T>(target, [&](std::int64_t i, T p) {
    T& m_i = m.data<T>()[i];
    const T g = grad.data<T>()[i] * static_cast<T>(step.grad_scale);
    const T c = beta1 * m_i + rest1 * g;
    const T sign = static_cast<T>((c > 0) - (c < 0));
    m_i = beta2 * m_i + rest2 * g;
    return p - static_cast<T>(step.lr) * (sign + static_cast<T>(step.weight_decay) * p);
  });
}

}  // namespace atl::ops::ref
