#include "atoll/ops/update/cpu_muon.h"

#include "atoll/ops/update/cpu_span.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/update/cpu_muon.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/update/cpu_update-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// `scale` is what multiplies the gradient, 1 - momentum included. direction = look_ahead (scale g)
// + carried m: (1, momentum) is Nesterov's, (0, 1) plain momentum's.
void MuonMomentumSpan(float scale, float momentum, float look_ahead, float carried, std::size_t n,
                      const float* grad, float* m, float* direction) {
  const F32 d;
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf g = hn::Mul(lanes.load(grad + i), hn::Set(d, scale));
    const Vf m_new = hn::MulAdd(hn::Set(d, momentum), lanes.load(m + i), g);
    lanes.store(m_new, m + i);
    const Vf ahead = hn::Mul(hn::Set(d, look_ahead), g);
    lanes.store(hn::MulAdd(hn::Set(d, carried), m_new, ahead), direction + i);
  });
}

void CombineSpan(float alpha, const float* x, float beta, std::size_t n, float* y) {
  const F32 d;
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf kept = hn::Mul(hn::Set(d, beta), lanes.load(y + i));
    lanes.store(hn::MulAdd(hn::Set(d, alpha), lanes.load(x + i), kept), y + i);
  });
}

void ApplySpan(float step_size, float decay, std::size_t n, const UpdateSpan& params,
               const float* direction) {
  const F32 d;
  update_lanes(params, n, [&](std::size_t i, auto lanes, Vf p) HWY_ATTR {
    const Vf step = hn::Mul(hn::Set(d, step_size), lanes.load(direction + i));
    return hn::Sub(p, hn::MulAdd(hn::Set(d, decay), p, step));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(MuonMomentumSpan);
HWY_EXPORT(CombineSpan);
HWY_EXPORT(ApplySpan);

}  // namespace

void muon_momentum(Run& run, const MuonMomentum& numbers, Tensor grad, Tensor m, Tensor direction) {
  const auto momentum = static_cast<float>(numbers.momentum);
  const auto scale = static_cast<float>(numbers.grad_scale * (1 - numbers.momentum));
  const float look_ahead = numbers.nesterov ? 1.0F : 0.0F;
  const float carried = numbers.nesterov ? momentum : 1.0F;
  run.threads().run_chunked(
      m.num_elements(), kElementsPerUpdate, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(MuonMomentumSpan)
        (scale, momentum, look_ahead, carried, static_cast<std::size_t>(end - begin),
         grad.data<float>() + begin, m.data<float>() + begin, direction.data<float>() + begin);
      });
}

void combine(Run& run, double alpha, Tensor x, double beta, Tensor y) {
  run.threads().run_chunked(
      y.num_elements(), kElementsPerUpdate, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(CombineSpan)
        (static_cast<float>(alpha), x.data<float>() + begin, static_cast<float>(beta),
         static_cast<std::size_t>(end - begin), y.data<float>() + begin);
      });
}

void apply_direction(Run& run, double step_size, double decay, const UpdateTarget& target,
                     Tensor direction) {
  run.threads().run_chunked(target.size(), kElementsPerUpdate,
                            [&](std::int64_t begin, std::int64_t end) {
                              HWY_DYNAMIC_DISPATCH(ApplySpan)
                              (static_cast<float>(step_size), static_cast<float>(decay),
                               static_cast<std::size_t>(end - begin), span_from(target, begin),
                               direction.data<float>() + begin);
                            });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
