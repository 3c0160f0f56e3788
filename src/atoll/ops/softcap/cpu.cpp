#include "atoll/ops/softcap/cpu.h"

#include <algorithm>

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/softcap/cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "atoll/ops/cpu/tanh-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

void Forward(float cap, const float* x, std::size_t n, float* y) {
  const Vf size = hn::Set(F32(), cap);
  const Vf inverse = hn::Set(F32(), 1.0F / cap);
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Mul(tanh_lanes(hn::Mul(lanes.load(x + i), inverse)), size), y + i);
  });
}

void Backward(float cap, const float* y, const float* dy, std::size_t n, float* dx) {
  const Vf one = hn::Set(F32(), 1.0F);
  const Vf inverse = hn::Set(F32(), 1.0F / cap);
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    const Vf t = hn::Mul(lanes.load(y + i), inverse);
    lanes.store(hn::Mul(lanes.load(dy + i), hn::NegMulAdd(t, t, one)), dx + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

constexpr std::int64_t kElementsPerTask = 16384;

}  // namespace

void softcap_forward(Run& run, double cap, Tensor x, Tensor y) {
  run.threads().run_chunked(x.num_elements(), kElementsPerTask,
                            [&](std::int64_t begin, std::int64_t end) {
                              HWY_DYNAMIC_DISPATCH(Forward)
                              (static_cast<float>(cap), x.data<float>() + begin,
                               static_cast<std::size_t>(end - begin), y.data<float>() + begin);
                            });
}

void softcap_backward(Run& run, double cap, Tensor y, Tensor dy, Tensor dx) {
  run.threads().run_chunked(
      y.num_elements(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(Backward)
        (static_cast<float>(cap), y.data<float>() + begin, dy.data<float>() + begin,
         static_cast<std::size_t>(end - begin), dx.data<float>() + begin);
      });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
