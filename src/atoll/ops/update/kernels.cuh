#pragma once

// Optimizers' updates, element by element: each reads the parameter as its target keeps it and
// writes it back so. Operations are those of ops/ref in the same order, so f32 gives the same bits.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// The parameters of an update; see ops/update/update_target.h.
template <typename T, bool kMasters>
struct Target {
  Global<T> values;
  Global<float> master;        // for kMasters
  std::int64_t first_element;  // of the flat vector; for bf16 without masters
  Draws rounding;

  ATOLL_DEVICE float read(std::int64_t i) const {
    if constexpr (kMasters)
      return master.load(i);
    else
      return widened(values.load(i));
  }
  ATOLL_DEVICE void write(std::int64_t i, float p) const {
    if constexpr (kMasters) {
      master.store(i, p);
      values.store(i, to_bf16(p));
    } else if constexpr (std::is_same_v<T, float>) {
      values.store(i, p);
    } else {
      const auto element = static_cast<std::uint64_t>(first_element + i);
      const std::uint32_t word =
          rounding.block(element / 8)[static_cast<std::size_t>(element / 2 % 4)];
      values.store(i,
                   to_bf16_stochastic(p, static_cast<std::uint16_t>(word >> (16 * (element % 2)))));
    }
  }
};

/// See ops/update/adamw.h; correction1 = 1 - beta1^step, rest1 = 1 - beta1.
template <typename T, bool kMasters>
struct AdamW {
  static constexpr const char* kName = "adamw";
  static constexpr int kMaxThreads = 256;
  Target<T, kMasters> target;
  Global<const float> grad;
  Global<float> m;
  Global<float> v;
  float lr, beta1, beta2, rest1, rest2, correction1, correction2, eps, weight_decay, grad_scale;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= grad.size) return;
    const float p = target.read(i);
    const float g = grad.load(i) * grad_scale;
    const float m_i = beta1 * m.load(i) + rest1 * g;
    const float v_i = beta2 * v.load(i) + rest2 * g * g;
    m.store(i, m_i);
    v.store(i, v_i);
    const float direction = m_i / correction1 / (sqrtf(v_i / correction2) + eps);
    target.write(i, p - lr * (direction + weight_decay * p));
  }
};

/// See ops/update/lion.h.
template <typename T, bool kMasters>
struct Lion {
  static constexpr const char* kName = "lion";
  static constexpr int kMaxThreads = 256;
  Target<T, kMasters> target;
  Global<const float> grad;
  Global<float> m;
  float lr, beta1, beta2, rest1, rest2, weight_decay, grad_scale;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= grad.size) return;
    const float p = target.read(i);
    const float g = grad.load(i) * grad_scale;
    const float before = m.load(i);
    const float c = beta1 * before + rest1 * g;
    const float sign = c > 0 ? 1.0F : c < 0 ? -1.0F : 0.0F;
    m.store(i, beta2 * before + rest2 * g);
    target.write(i, p - lr * (sign + weight_decay * p));
  }
};

/// See ops/update/sgd.h; m is empty without momentum.
template <typename T, bool kMasters>
struct Sgd {
  static constexpr const char* kName = "sgd";
  static constexpr int kMaxThreads = 256;
  Target<T, kMasters> target;
  Global<const float> grad;
  Global<float> m;
  float lr, momentum, weight_decay, grad_scale;
  bool nesterov;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= grad.size) return;
    const float p = target.read(i);
    const float g = grad.load(i) * grad_scale;
    float direction = g;
    if (m.size != 0) {
      const float buffer = momentum * m.load(i) + g;
      m.store(i, buffer);
      direction = nesterov ? g + momentum * buffer : buffer;
    }
    target.write(i, p - lr * (direction + weight_decay * p));
  }
};

using UpdateKernels = KernelList<AdamW<float, false>, AdamW<Bf16, false>, AdamW<Bf16, true>,
                                 Lion<float, false>, Lion<Bf16, false>, Lion<Bf16, true>,
                                 Sgd<float, false>, Sgd<Bf16, false>, Sgd<Bf16, true>>;

}  // namespace atl::ops::cuda
