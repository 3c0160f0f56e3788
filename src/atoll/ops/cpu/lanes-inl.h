// simd/lanes-inl.h for kernels, and the element type of a tensor, compiled once per instruction
// set.

#if defined(ATOLL_OPS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_LANES_INL_H_
#undef ATOLL_OPS_CPU_LANES_INL_H_
#else
#define ATOLL_OPS_CPU_LANES_INL_H_
#endif

#include "atoll/simd/lanes-inl.h"
#include "atoll/tensor/spec.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace)

/// Calls fn(T{}) with the element type of f32 or bf16 tensors.
template <class Fn>
HWY_INLINE void with_storage(Dtype dtype, Fn fn) {
  if (dtype == Dtype::kBf16) {
    fn(Bf16{});
  } else {
    fn(float{});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_LANES_INL_H_
