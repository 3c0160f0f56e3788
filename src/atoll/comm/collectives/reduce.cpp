#include "atoll/comm/collectives/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "atoll/base/check.h"

// The instruction sets that differ for such loops; each adds to the build time.
// clang-format off
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/comm/collectives/reduce.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::comm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kBlock = 2048;  // elements; of f32 8 KiB a source

/// The type in which elements of T are added.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Bf16* p) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
/// As to_bf16 of each lane.
template <class D>
HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, Bf16* p) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40));
  const auto chosen = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quiet, nearest);
  const auto narrow = hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<D>(), chosen));
  hn::StoreU(narrow, d16, reinterpret_cast<std::uint16_t*>(p));
}

struct Sum {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> a, hn::Vec<D> b) const {
    if constexpr (std::is_integral_v<hn::TFromD<D>>) {
      const hn::RebindToUnsigned<D> du;  // wraps where signed numbers may not
      return hn::BitCast(d, hn::Add(hn::BitCast(du, a), hn::BitCast(du, b)));
    } else {
      return hn::Add(a, b);
    }
  }
};

/// a where a is beyond b or a NaN; b elsewhere, which may be a NaN.
struct Max {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> a, hn::Vec<D> b) const {
    if constexpr (std::is_integral_v<hn::TFromD<D>>) {
      return hn::Max(a, b);
    } else {
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    }
  }
};
struct Min {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> a, hn::Vec<D> b) const {
    if constexpr (std::is_integral_v<hn::TFromD<D>>) {
      return hn::Min(a, b);
    } else {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
    }
  }
};

/// out[i] = ((first[i] op rest[0][i]) op rest[1][i]) ... of N at once: as many streams of memory as
/// prefetchers follow, and nothing stored in between. The last elements go through a vector's worth
/// of room, so the arithmetic of an element does not depend on where it lies.
template <std::size_t N, class Fn, class First, class T, class Out>
HWY_INLINE void combine(Fn fn, const First* first, const T* const* rest, Out* out,
                        std::size_t count) {
  const hn::ScalableTag<Wide<T>> d;
  const std::size_t width = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + width <= count; i += width) {
    auto value = load(d, first + i);
    for (std::size_t k = 0; k < N; ++k) value = fn(d, value, load(d, rest[k] + i));
    store(d, value, out + i);
  }
  if (i == count) return;
  constexpr std::size_t kRoom = HWY_MAX_BYTES / sizeof(Wide<T>);
  First last_first[kRoom] = {};
  T last[kRoom] = {};
  Out last_out[kRoom];
  std::memcpy(static_cast<void*>(last_first), first + i, (count - i) * sizeof(First));
  auto value = load(d, last_first);
  for (std::size_t k = 0; k < N; ++k) {
    std::memcpy(static_cast<void*>(last), rest[k] + i, (count - i) * sizeof(T));
    value = fn(d, value, load(d, last));
  }
  store(d, value, last_out);
  std::memcpy(static_cast<void*>(out + i), last_out, (count - i) * sizeof(Out));
}

/// The same of 1 to kAtOnce.
constexpr std::size_t kAtOnce = 3;
template <class Fn, class First, class T, class Out>
HWY_INLINE void combine_some(Fn fn, const First* first, std::span<const T* const> rest, Out* out,
                             std::size_t count) {
  if (rest.size() == 1) return combine<1>(fn, first, rest.data(), out, count);
  if (rest.size() == 2) return combine<2>(fn, first, rest.data(), out, count);
  combine<3>(fn, first, rest.data(), out, count);
}

/// One block of at most kBlock elements from `begin`.
template <class T, class Fn>
HWY_INLINE void reduce_block(Fn fn, std::span<const void* const> sources,
                             std::span<void* const> results, std::int64_t begin,
                             std::size_t count) {
  HWY_ALIGN Wide<T> sum[kBlock];
  const auto source = [&](std::size_t i) { return static_cast<const T*>(sources[i]) + begin; };
  T* result = static_cast<T*>(results[0]) + begin;
  const T* rest[kAtOnce];
  for (std::size_t next = 1; next < sources.size();) {
    const bool from_start = next == 1;
    std::size_t some = 0;
    while (some < kAtOnce && next < sources.size()) rest[some++] = source(next++);
    const std::span<const T* const> these(rest, some);
    const bool to_end = next == sources.size();
    if (from_start && to_end) {
      combine_some(fn, source(0), these, result, count);
    } else if (from_start) {
      combine_some(fn, source(0), these, sum, count);
    } else if (to_end) {
      combine_some(fn, sum, these, result, count);
    } else {
      combine_some(fn, sum, these, sum, count);
    }
  }
  for (std::size_t i = 1; i < results.size(); ++i) {
    std::memcpy(static_cast<T*>(results[i]) + begin, result, count * sizeof(T));
  }
}

template <class T, class Fn>
void reduce_all(Fn fn, std::span<const void* const> sources, std::span<void* const> results,
                std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto block = static_cast<std::size_t>(std::min(kBlock, count - begin));
    reduce_block<T>(fn, sources, results, begin, block);
  }
}

template <class T>
void reduce_type(Reduce reduce, std::span<const void* const> sources,
                 std::span<void* const> results, std::int64_t count) {
  switch (reduce) {
    case Reduce::kSum:
      return reduce_all<T>(Sum(), sources, results, count);
    case Reduce::kMax:
      return reduce_all<T>(Max(), sources, results, count);
    case Reduce::kMin:
      return reduce_all<T>(Min(), sources, results, count);
  }
}

void ReduceInOrder(Dtype dtype, Reduce reduce, std::span<const void* const> sources,
                   std::span<void* const> results, std::int64_t count) {
  switch (dtype) {
    case Dtype::kF32:
      return reduce_type<float>(reduce, sources, results, count);
    case Dtype::kF64:
      return reduce_type<double>(reduce, sources, results, count);
    case Dtype::kBf16:
      return reduce_type<Bf16>(reduce, sources, results, count);
    case Dtype::kI32:
      return reduce_type<std::int32_t>(reduce, sources, results, count);
    case Dtype::kI64:
      return reduce_type<std::int64_t>(reduce, sources, results, count);
    default:
      return;  // refused before
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::comm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::comm {

HWY_EXPORT(ReduceInOrder);

bool can_reduce(Dtype dtype) {
  return dtype != Dtype::kF16 && dtype != Dtype::kU8;
}

void reduce_in_order(Dtype dtype, Reduce reduce, std::span<const void* const> sources,
                     std::span<void* const> results, std::int64_t count) {
  ATOLL_CHECK(can_reduce(dtype), "no reductions of {}", dtype_name(dtype));
  ATOLL_CHECK(!sources.empty() && !results.empty());
  if (count == 0) return;
  if (sources.size() > 1) {
    HWY_DYNAMIC_DISPATCH(ReduceInOrder)(dtype, reduce, sources, results, count);
    return;
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * dtype_size(dtype);
  for (void* result : results) {
    if (result != sources[0]) std::memcpy(result, sources[0], bytes);
  }
}

}  // namespace atl::comm
#endif  // HWY_ONCE
