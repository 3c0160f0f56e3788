// Loops over rows of f32 or bf16, whole vectors first and then the rest, compiled once per
// instruction set: include this after hwy/highway.h in a file that foreach_target.h re-includes.
//
// A loop's body is a generic lambda body(i, lanes): lanes.load(p + i) and lanes.store(v, p + i)
// touch a whole vector, or only the elements that are left (the others load as zero). The
// arithmetic of both is the same, so an element's bits do not depend on where a tensor is cut.
// Vectors are f32 always: bf16 widens when it is loaded and rounds to nearest even when stored.

#if defined(ATOLL_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_SIMD_LANES_INL_H_
#undef ATOLL_SIMD_LANES_INL_H_
#else
#define ATOLL_SIMD_LANES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "atoll/simd/bf16.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vf = hn::Vec<F32>;

using U16 = hn::Rebind<std::uint16_t, F32>;  ///< as many elements as F32, of half the bytes
using Vu16 = hn::Vec<U16>;

/// The f32 of each bf16.
HWY_INLINE Vf widen_lanes(Vu16 bits) {
  const hn::RebindToUnsigned<F32> d;
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(d, bits)));
}

/// As to_bf16 of each lane.
HWY_INLINE Vu16 narrow_lanes(Vf value) {
  const hn::RebindToUnsigned<F32> d;
  const auto bits = hn::BitCast(d, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40));
  const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
  const auto chosen = hn::IfThenElse(is_nan, quiet, nearest);
  // Below 2^16, so the saturation of the signed conversion has nothing to do.
  return hn::DemoteTo(U16(), hn::BitCast(hn::RebindToSigned<F32>(), chosen));
}

/// The bits of bf16 in memory.
HWY_INLINE const std::uint16_t* bits_of(const Bf16* p) {
  return &p->bits;
}

/// The same, to write.
HWY_INLINE std::uint16_t* bits_of(Bf16* p) {
  return &p->bits;
}

/// A whole vector of memory.
struct Whole {
  HWY_INLINE Vf load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE Vf load(const Bf16* p) const { return widen_lanes(hn::LoadU(U16(), bits_of(p))); }
  HWY_INLINE void store(Vf v, float* p) const { hn::StoreU(v, F32(), p); }
  HWY_INLINE void store(Vf v, Bf16* p) const { hn::StoreU(narrow_lanes(v), U16(), bits_of(p)); }
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
  HWY_INLINE Vf load(const Bf16* p) const {
    HWY_ALIGN std::uint16_t buffer[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(buffer, p, n * sizeof(Bf16));
    return widen_lanes(hn::Load(U16(), buffer));
  }
  HWY_INLINE void store(Vf v, float* p) const {
    HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(v, F32(), buffer);
    std::memcpy(p, buffer, n * sizeof(float));
  }
  HWY_INLINE void store(Vf v, Bf16* p) const {
    HWY_ALIGN std::uint16_t buffer[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(narrow_lanes(v), U16(), buffer);
    std::memcpy(static_cast<void*>(p), buffer, n * sizeof(Bf16));
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
}  // namespace atl::simd
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_SIMD_LANES_INL_H_
