// 2^x, compiled once per instruction set: include this after hwy/highway.h in a file that
// foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_EXP2_INL_H_
#undef ATOLL_OPS_CPU_EXP2_INL_H_
#else
#define ATOLL_OPS_CPU_EXP2_INL_H_
#endif

#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

/// log2(e): e^x is 2^(kBitsPerNat x).
constexpr float kBitsPerNat = 1.44269504F;

/// 2^x within 2e-7 for -126 <= x <= 127.5, 0 from -127 down, no number or nonsense beyond 127.5.
/// NaN stays NaN. Half the arithmetic of a library's exp, which must take log2(e) apart.
HWY_INLINE Vf exp2_lanes(Vf x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // The maximum without vectors returns the number when x is NaN.
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, -127.0F)), hn::Set(d, -127.0F), x);
#else
  // The order of the operands matters: x86's maximum returns the second one when x is NaN.
  x = hn::Max(hn::Set(d, -127.0F), x);
#endif
  // Next to 2^23 + 2^22 a unit is the last bit: the sum ends in the bits of 127 + the nearest
  // integer, which is 2^that's exponent.
  const Vf shift = hn::Set(d, 12582912.0F + 127.0F);
  const Vf shifted = hn::Add(x, shift);
  const Vf f = hn::Sub(x, hn::Sub(shifted, shift));
  // 2^f = 1 + f q(f) on [-1/2, 1/2], q of the least relative error, 1e-7.
  Vf p = hn::Set(d, 1.32647288e-3F);
  p = hn::MulAdd(p, f, hn::Set(d, 9.67151318e-3F));
  p = hn::MulAdd(p, f, hn::Set(d, 5.55073374e-2F));
  p = hn::MulAdd(p, f, hn::Set(d, 2.40222421e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 6.93146978e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0F));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_EXP2_INL_H_
