// The loop of every optimizer's kernel over the parameters it changes, compiled once per
// instruction set: include this after hwy/highway.h in a file that foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_UPDATE_INL_H_
#undef ATOLL_OPS_CPU_UPDATE_INL_H_
#else
#define ATOLL_OPS_CPU_UPDATE_INL_H_
#endif

#include <algorithm>

#include "atoll/ops/cpu/lanes-inl.h"
#include "atoll/ops/cpu/philox-inl.h"
#include "atoll/ops/update/cpu_span.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Narrow = hn::Rebind<std::uint16_t, F32>;
using NarrowBits = hn::Vec<Narrow>;
using F32Bits = hn::RebindToUnsigned<F32>;

HWY_INLINE NarrowBits load_bits(Whole, const std::uint16_t* p) {
  return hn::LoadU(Narrow(), p);
}
HWY_INLINE NarrowBits load_bits(Part part, const std::uint16_t* p) {
  HWY_ALIGN std::uint16_t buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, part.n * sizeof(std::uint16_t));
  return hn::Load(Narrow(), buffer);
}
HWY_INLINE void store_bits(Whole, NarrowBits v, std::uint16_t* p) {
  hn::StoreU(v, Narrow(), p);
}
HWY_INLINE void store_bits(Part part, NarrowBits v, std::uint16_t* p) {
  HWY_ALIGN std::uint16_t buffer[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, Narrow(), buffer);
  std::memcpy(p, buffer, part.n * sizeof(std::uint16_t));
}

/// The f32 of bf16 bits.
HWY_INLINE Vf widen_bits(NarrowBits bits) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(F32Bits(), bits)));
}

/// bf16 bits of v after `rise` was added to the bits of what is neither infinite nor a NaN;
/// infinities stay, NaNs become quiet. See to_bf16 and to_bf16_stochastic in simd/bf16.h.
HWY_INLINE NarrowBits round_bits(Vf v, hn::Vec<F32Bits> rise) {
  const F32Bits du;
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFU));
  const auto infinity = hn::Set(di, 0x7F800000);
  const auto beyond = hn::Gt(hn::BitCast(di, magnitude), infinity);
  const auto finite = hn::Lt(hn::BitCast(di, magnitude), infinity);
  const auto risen = hn::Add(bits, hn::IfThenElseZero(hn::RebindMask(du, finite), rise));
  const auto quiet = hn::IfThenElseZero(hn::RebindMask(du, beyond), hn::Set(du, 0x40U));
  const auto upper = hn::Or(hn::ShiftRight<16>(risen), quiet);
  return hn::DemoteTo(Narrow(), hn::BitCast(di, upper));
}

/// What rounds to the nearest bf16, ties to even, when it is added to the bits of v.
HWY_INLINE hn::Vec<F32Bits> nearest_rise(Vf v) {
  const F32Bits du;
  const auto odd = hn::And(hn::ShiftRight<16>(hn::BitCast(du, v)), hn::Set(du, 1U));
  return hn::Add(odd, hn::Set(du, 0x7FFFU));
}

/// update_lanes for bf16 values without masters.
template <class Body>
HWY_INLINE void update_stochastically(const UpdateSpan& span, std::size_t n, Body body) {
  constexpr std::size_t kBatch = 256;
  constexpr std::size_t kDrawsPerBlock = 8;
  // Room for a block that is begun before the batch, for the blocks PhiloxBlocks makes beyond its
  // end, and for the lanes of a last, partial vector.
  constexpr std::size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);
  constexpr std::size_t kDraws = kBatch + kDrawsPerBlock + kDrawsPerBlock * kMaxLanes;
  HWY_ALIGN std::uint32_t words[kDraws / 2];
  const std::size_t blocks_at_once = hn::Lanes(U64());
  for (std::size_t at = 0; at < n; at += kBatch) {
    const std::size_t count = std::min(kBatch, n - at);
    const std::uint64_t first = span.first_element + at;
    const std::size_t skip = first % kDrawsPerBlock;
    for (std::size_t block = 0; block * kDrawsPerBlock < skip + count; block += blocks_at_once) {
      PhiloxBlocks(span.key.data(), span.salt.data(), first / kDrawsPerBlock + block,
                   words + block * (kDrawsPerBlock / 2));
    }
    const auto* draws = reinterpret_cast<const unsigned char*>(words) + 2 * skip;
    for_lanes(count, [&](std::size_t i, auto lanes) HWY_ATTR {
      HWY_ALIGN std::uint16_t draw[kMaxLanes];
      std::memcpy(draw, draws + 2 * i, hn::Lanes(F32()) * sizeof(std::uint16_t));
      std::uint16_t* p = span.narrow + at + i;
      const Vf updated = body(at + i, lanes, widen_bits(load_bits(lanes, p)));
      const auto rise = hn::PromoteTo(F32Bits(), hn::Load(Narrow(), draw));
      store_bits(lanes, round_bits(updated, rise), p);
    });
  }
}

/// body(i, lanes, p) -> the new p, over the n elements of `span`; the results go where and as the
/// span keeps them.
template <class Body>
HWY_INLINE void update_lanes(const UpdateSpan& span, std::size_t n, Body body) {
  float* wide = span.wide;
  std::uint16_t* narrow = span.narrow;
  if (wide == nullptr) {
    update_stochastically(span, n, body);
  } else if (narrow == nullptr) {
    for_lanes(n, [&](std::size_t i, auto lanes)
                     HWY_ATTR { lanes.store(body(i, lanes, lanes.load(wide + i)), wide + i); });
  } else {
    for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf updated = body(i, lanes, lanes.load(wide + i));
      lanes.store(updated, wide + i);
      store_bits(lanes, round_bits(updated, nearest_rise(updated)), narrow + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_UPDATE_INL_H_
