// Loops over f32 rows, whole vectors first and then the rest, compiled once per instruction set:
// include this after hwy/highway.h in a file that foreach_target.h re-includes.
//
// A loop's body is a generic lambda body(i, lanes): lanes.load(p + i) and lanes.store(v, p + i)
// touch a whole vector, or only the elements that are left (the others load as zero). The
// arithmetic of both is the same, so an element's bits do not depend on where a tensor is cut.

#if defined(ATOLL_OPS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_LANES_INL_H_
#undef ATOLL_OPS_CPU_LANES_INL_H_
#else
#define ATOLL_OPS_CPU_LANES_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vf = hn::Vec<F32>;

/// A whole vector of memory.
struct Whole {
  HWY_INLINE Vf load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE void store(Vf v, float* p) const { hn::StoreU(v, F32(), p); }
  /// v, in a sum over elements.
  HWY_INLINE Vf counted(Vf v) const { return v; }
};

/// The first n elements of a vector. By way of a buffer: masked loads may fault past the end.
struct Part {
  std::size_t n;

  HWY_INLINE Vf load(const float* p) const {
    HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(buffer, p, n * sizeof(float));
    return hn::Load(F32(), buffer);
  }
  HWY_INLINE void store(Vf v, float* p) const {
    HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(v, F32(), buffer);
    std::memcpy(p, buffer, n * sizeof(float));
  }
  /// v with zero in the lanes that are no element, whatever came of their zeros.
  HWY_INLINE Vf counted(Vf v) const { return hn::IfThenElseZero(hn::FirstN(F32(), n), v); }
};

/// body(i, lanes) over [0, n) in vectors.
template <class Body>
HWY_INLINE void for_lanes(std::size_t n, Body body) {
  const std::size_t width = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + width <= n; i += width) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

/// Two running sums, lane by lane.
struct TwoVectors {
  Vf first;
  Vf second;
};
struct TwoSums {
  float first;
  float second;
};

/// Up to two sums over [0, n) in one sweep: term(i, lanes, sums) adds to sums.first and
/// sums.second. Two accumulators each hide the latency of an add; the order depends on n alone.
template <class Term>
HWY_INLINE TwoSums sum_lanes(std::size_t n, Term term) {
  const F32 d;
  const std::size_t width = hn::Lanes(d);
  TwoVectors even{hn::Zero(d), hn::Zero(d)};
  TwoVectors odd{hn::Zero(d), hn::Zero(d)};
  std::size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    term(i, Whole{}, even);
    term(i + width, Whole{}, odd);
  }
  if (i + width <= n) {
    term(i, Whole{}, even);
    i += width;
  }
  if (i < n) term(i, Part{n - i}, odd);
  return {hn::GetLane(hn::SumOfLanes(d, hn::Add(even.first, odd.first))),
          hn::GetLane(hn::SumOfLanes(d, hn::Add(even.second, odd.second)))};
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_LANES_INL_H_
