#pragma once

// Gradient descent with momentum, in any float type.

#include "atoll/ops/update/ref_update_target.h"
#include "atoll/ops/update/sgd.h"

namespace atl::ops::ref {

/// See ops/update/sgd.h.
template <typename T>
void sgd(const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  const T momentum = static_cast<T>(step.momentum);
  const T lr = static_cast<T>(step.lr);
  T* buffer = m.defined() ? m.data<T>() : nullptr;
  update_each<T>(target, [&](std::int64_t i, T p) {
    const T g = grad.data<T>()[i] * static_cast<T>(step.grad_scale);
    const T decay = static_cast<T>(step.weight_decay) * p;
    if (buffer == nullptr) return p - lr * (g + decay);
    buffer[i] = momentum * buffer[i] + g;
    return p - lr * ((step.nesterov ? g + momentum * buffer[i] : buffer[i]) + decay);
  });
}

}  // namespace atl::ops::ref
