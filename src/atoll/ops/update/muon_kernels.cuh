#pragma once

// The pieces of Muon that are not products. Operations are those of ops/ref in the same order.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/update/kernels.cuh"

namespace atl::ops::cuda {

/// See ops/update/muon.h; rest = 1 - momentum.
struct MuonMomentumStep {
  static constexpr const char* kName = "muon_momentum";
  static constexpr int kMaxThreads = 256;
  Global<const float> grad;
  Global<float> m;
  Global<float> direction;
  float momentum, rest, grad_scale;
  bool nesterov;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= m.size) return;
    const float g = grad.load(i) * grad_scale;
    const float m_i = momentum * m.load(i) + rest * g;
    m.store(i, m_i);
    direction.store(i, nesterov ? momentum * m_i + rest * g : m_i);
  }
};

/// factor = 1 / max(sqrt(sum of partials), least), by one warp.
struct MuonFactor {
  static constexpr const char* kName = "muon_factor";
  static constexpr int kMaxThreads = 32;
  Global<const double> partials;
  Global<float> factor;
  double least;

  ATOLL_DEVICE void operator()() const {
    double sum = 0;
    for (std::int64_t i = thread(); i < partials.size; i += kWarp) sum += partials.load(i);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    const double norm = sqrt(sum);
    // A NaN stays one.
    if (thread() == 0) factor.store(0, static_cast<float>(1 / (norm < least ? least : norm)));
  }
};

/// x *= factor.
struct MuonScale {
  static constexpr const char* kName = "muon_scale";
  static constexpr int kMaxThreads = 256;
  Global<const float> factor;
  Global<float> x;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= x.size) return;
    x.store(i, factor.load(0) * x.load(i));
  }
};

/// square = a I + b gram + c square, both (n, n).
struct MuonPolynomial {
  static constexpr const char* kName = "muon_polynomial";
  static constexpr int kMaxThreads = 256;
  Global<const float> gram;
  Global<float> square;
  std::int64_t n;
  float a, b, c;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= square.size) return;
    const float sum = b * gram.load(i) + c * square.load(i);
    square.store(i, i / n == i % n ? sum + a : sum);
  }
};

/// p -= step_size direction + decay p.
template <typename T, bool kMasters>
struct ApplyDirection {
  static constexpr const char* kName = "apply_direction";
  static constexpr int kMaxThreads = 256;
  Target<T, kMasters> target;
  Global<const float> direction;
  float step_size, decay;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= direction.size) return;
    const float p = target.read(i);
    target.write(i, p - (step_size * direction.load(i) + decay * p));
  }
};

using MuonKernels = KernelList<MuonMomentumStep, MuonFactor, MuonScale, MuonPolynomial,
                               ApplyDirection<float, false>, ApplyDirection<Bf16, false>,
                               ApplyDirection<Bf16, true>>;

}  // namespace atl::ops::cuda
