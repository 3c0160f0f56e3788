#pragma once

// AdamW as its paper writes it, in any float type.

#include <cmath>

#include "atoll/ops/update/adamw.h"
#include "atoll/ops/update/ref_update_target.h"

namespace atl::ops::ref {

/// See ops/update/adamw.h.
template <typename T>
void adamw(const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m, Tensor v) {
  const T beta1 = static_cast<T>(step.beta1);
  const T beta2 = static_cast<T>(step.beta2);
  const double exponent = static_cast<double>(step.step);
  const T correction1 = static_cast<T>(1 - std::pow(step.beta1, exponent));
  const T correction2 = static_cast<T>(1 - std::pow(step.beta2, exponent));
  update_each<T>(target, [&](std::int64_t i, T p) {
    T& m_i = m.data<T>()[i];
    T& v_i = v.data<T>()[i];
    const T g = grad.data<T>()[i] * static_cast<T>(step.grad_scale);
    m_i = beta1 * m_i + static_cast<T>(1 - step.beta1) * g;
    v_i = beta2 * v_i + static_cast<T>(1 - step.beta2) * g * g;
    const T direction =
        m_i / correction1 / (std::sqrt(v_i / correction2) + static_cast<T>(step.eps));
    return p - static_cast<T>(step.lr) * (direction + static_cast<T>(step.weight_decay) * p);
  });
}

}  // namespace atl::ops::ref
