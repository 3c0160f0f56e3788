#include "atoll/ops/update/cpu_adamw.h"

#include <cmath>

#include "atoll/ops/update/cpu_span.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/update/cpu_adamw.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/update/cpu_update-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// 28 bytes move per element and a division and a root are the slowest of its arithmetic: memory is
// the limit, and p, m and v are read before they are written, so streaming stores gain nothing.
void AdamWSpan(const AdamWFactors& factors, std::size_t n, const UpdateSpan& params,
               const float* grad, float* m, float* v) {
  const F32 d;
  const Vf grad_scale = hn::Set(d, factors.grad_scale);
  const Vf beta1 = hn::Set(d, factors.beta1);
  const Vf rest1 = hn::Set(d, factors.rest1);
  const Vf beta2 = hn::Set(d, factors.beta2);
  const Vf rest2 = hn::Set(d, factors.rest2);
  const Vf step_size = hn::Set(d, factors.step_size);
  const Vf root_scale = hn::Set(d, factors.root_scale);
  const Vf eps = hn::Set(d, factors.eps);
  const Vf decay = hn::Set(d, factors.decay);
  update_lanes(params, n, [&](std::size_t i, auto lanes, Vf p) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(grad + i), grad_scale);
    const Vf m_new = hn::MulAdd(beta1, lanes.load(m + i), hn::Mul(rest1, g));
    const Vf v_new = hn::MulAdd(beta2, lanes.load(v + i), hn::Mul(hn::Mul(rest2, g), g));
    const Vf root = hn::MulAdd(hn::Sqrt(v_new), root_scale, eps);
    // Taken off p together: p * (1 - decay) would round a decay of 1e-5 to three digits.
    const Vf change = hn::MulAdd(decay, p, hn::Div(hn::Mul(step_size, m_new), root));
    lanes.store(m_new, m + i);
    lanes.store(v_new, v + i);
    return hn::Sub(p, change);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(AdamWSpan);

}  // namespace

void adamw(Run& run, const AdamWStep& step, const UpdateTarget& target, Tensor grad, Tensor m,
           Tensor v) {
  const double exponent = static_cast<double>(step.step);
  const AdamWFactors factors = {
      .grad_scale = static_cast<float>(step.grad_scale),
      .beta1 = static_cast<float>(step.beta1),
      .rest1 = static_cast<float>(1 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .rest2 = static_cast<float>(1 - step.beta2),
      .step_size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, exponent))),
      .root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, exponent))),
      .eps = static_cast<float>(step.eps),
      .decay = static_cast<float>(step.lr * step.weight_decay),
  };
  run.threads().run_chunked(
      target.size(), kElementsPerUpdate, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(AdamWSpan)
        (factors, static_cast<std::size_t>(end - begin), span_from(target, begin),
         grad.data<float>() + begin, m.data<float>() + begin, v.data<float>() + begin);
      });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
