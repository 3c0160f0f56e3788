// tanh for kernels, compiled once per instruction set.

#if defined(ATOLL_OPS_CPU_TANH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_TANH_INL_H_
#undef ATOLL_OPS_CPU_TANH_INL_H_
#else
#define ATOLL_OPS_CPU_TANH_INL_H_
#endif

#include "atoll/ops/cpu/exp2-inl.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// tanh(x) within 4e-7 of itself. NaN stays NaN.
HWY_INLINE Vf tanh_lanes(Vf x) {
  const F32 d;
  const Vf one = hn::Set(d, 1.0F);
  // Near 0, where the other formula cancels: x + x^3 q(x^2), the polynomial that meets it at the
  // Chebyshev points of x^2 from 0 to 0.4.
  const Vf z = hn::Mul(x, x);
  Vf q = hn::Set(d, -6.04516501e-3F);
  q = hn::MulAdd(q, z, hn::Set(d, 2.09613293e-2F));
  q = hn::MulAdd(q, z, hn::Set(d, -5.38432635e-2F));
  q = hn::MulAdd(q, z, hn::Set(d, 1.33327186e-1F));
  q = hn::MulAdd(q, z, hn::Set(d, -3.33333284e-1F));
  const Vf near = hn::MulAdd(hn::Mul(x, z), q, x);
  // 1 - 2 e / (1 + e), e = e^(-2 |x|): nothing overflows.
  const Vf e = exp2_lanes(hn::Mul(hn::Abs(x), hn::Set(d, -2.88539008F)));
  const Vf far = hn::Sub(one, hn::Div(hn::Add(e, e), hn::Add(one, e)));
  return hn::IfThenElse(hn::Lt(z, hn::Set(d, 0.4F)), near, hn::CopySign(far, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_TANH_INL_H_
