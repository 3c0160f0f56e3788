#include "atoll/ops/update/cpu_sgd.h"

#include "atoll/ops/update/cpu_span.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/update/cpu_sgd.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/update/cpu_update-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

void SgdSpan(const SgdFactors& factors, std::size_t n, const UpdateSpan& params,
             const float* grad) {
  const F32 d;
  const Vf grad_scale = hn::Set(d, factors.grad_scale);
  const Vf weight_decay = hn::Set(d, factors.weight_decay);
  const Vf lr = hn::Set(d, factors.lr);
  update_lanes(params, n, [&](std::size_t i, auto lanes, Vf p) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(grad + i), grad_scale);
    return hn::NegMulAdd(lr, hn::MulAdd(weight_decay, p, g), p);
  });
}

void MomentumSpan(const SgdFactors& factors, std::size_t n, const UpdateSpan& params,
                  const float* grad, float* m) {
  const F32 d;
  const Vf grad_scale = hn::Set(d, factors.grad_scale);
  const Vf weight_decay = hn::Set(d, factors.weight_decay);
  const Vf momentum = hn::Set(d, factors.momentum);
  const Vf look_ahead = hn::Set(d, factors.look_ahead);
  const Vf carried = hn::Set(d, factors.carried);
  const Vf lr = hn::Set(d, factors.lr);
  update_lanes(params, n, [&](std::size_t i, auto lanes, Vf p) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(grad + i), grad_scale);
    const Vf m_new = hn::MulAdd(momentum, lanes.load(m + i), g);
    lanes.store(m_new, m + i);
    const Vf direction = hn::MulAdd(carried, m_new, hn::Mul(look_ahead, g));
    return hn::NegMulAdd(lr, hn::MulAdd(weight_decay, p, direction), p);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(SgdSpan);
HWY_EXPORT(MomentumSpan);

}  // namespace

void sgd(Run& run, const SgdStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  const SgdFactors factors = {
      .grad_scale = static_cast<float>(step.grad_scale),
      .weight_decay = static_cast<float>(step.weight_decay),
      .momentum = static_cast<float>(step.momentum),
      .look_ahead = step.nesterov ? 1.0F : 0.0F,
      .carried = step.nesterov ? static_cast<float>(step.momentum) : 1.0F,
      .lr = static_cast<float>(step.lr),
  };
  float* buffer = m.defined() ? m.data<float>() : nullptr;
  run.threads().run_chunked(
      target.size(), kElementsPerUpdate, [&](std::int64_t begin, std::int64_t end) {
        const auto n = static_cast<std::size_t>(end - begin);
        const UpdateSpan params = span_from(target, begin);
        if (buffer == nullptr) {
          HWY_DYNAMIC_DISPATCH(SgdSpan)(factors, n, params, grad.data<float>() + begin);
        } else {
          HWY_DYNAMIC_DISPATCH(MomentumSpan)
          (factors, n, params, grad.data<float>() + begin, buffer + begin);
        }
      });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
