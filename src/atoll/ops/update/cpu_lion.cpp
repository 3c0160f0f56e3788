#include "atoll/ops/update/cpu_lion.h"

#include "atoll/ops/update/cpu_span.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/update/cpu_lion.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/update/cpu_update-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

void LionSpan(const LionFactors& factors, std::size_t n, const UpdateSpan& params,
              const float* grad, float* m) {
  const F32 d;
  const Vf grad_scale = hn::Set(d, factors.grad_scale);
  const Vf beta1 = hn::Set(d, factors.beta1);
  const Vf rest1 = hn::Set(d, factors.rest1);
  const Vf beta2 = hn::Set(d, factors.beta2);
  const Vf rest2 = hn::Set(d, factors.rest2);
  const Vf lr = hn::Set(d, factors.lr);
  const Vf decay = hn::Set(d, factors.decay);
  update_lanes(params, n, [&](std::size_t i, auto lanes, Vf p) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(grad + i), grad_scale);
    const Vf before = lanes.load(m + i);
    const Vf c = hn::MulAdd(beta1, before, hn::Mul(rest1, g));
    lanes.store(hn::MulAdd(beta2, before, hn::Mul(rest2, g)), m + i);
    const Vf step = hn::IfThenZeroElse(hn::Eq(c, hn::Zero(d)), hn::CopySign(lr, c));
    return hn::Sub(p, hn::MulAdd(decay, p, step));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(LionSpan);

}  // namespace

void lion(Run& run, const LionStep& step, const UpdateTarget& target, Tensor grad, Tensor m) {
  const LionFactors factors = {
      .grad_scale = static_cast<float>(step.grad_scale),
      .beta1 = static_cast<float>(step.beta1),
      .rest1 = static_cast<float>(1 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .rest2 = static_cast<float>(1 - step.beta2),
      .lr = static_cast<float>(step.lr),
      .decay = static_cast<float>(step.lr * step.weight_decay),
  };
  run.threads().run_chunked(
      target.size(), kElementsPerUpdate, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(LionSpan)
        (factors, static_cast<std::size_t>(end - begin), span_from(target, begin),
         grad.data<float>() + begin, m.data<float>() + begin);
      });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
