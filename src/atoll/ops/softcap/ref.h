#pragma once

// The reference of softcap.h, for f32 and f64.

#include <cmath>
#include <cstdint>

#include "atoll/tensor/tensor.h"

namespace atl::ops::ref {

template <typename T>
void softcap_forward(double cap, Tensor x, Tensor y) {
  const T size = static_cast<T>(cap);
  for (std::int64_t i = 0; i < x.num_elements(); ++i) {
    y.data<T>()[i] = size * std::tanh(x.data<T>()[i] / size);
  }
}

template <typename T>
void softcap_backward(double cap, Tensor y, Tensor dy, Tensor dx) {
  for (std::int64_t i = 0; i < y.num_elements(); ++i) {
    const T t = y.data<T>()[i] / static_cast<T>(cap);
    dx.data<T>()[i] = dy.data<T>()[i] * (T{1} - t * t);
  }
}

}  // namespace atl::ops::ref
