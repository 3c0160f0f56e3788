#include "atoll/compress/arithmetic.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/compress/arithmetic.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/simd/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::F32;
using simd::HWY_NAMESPACE::for_lanes;

// Not MulAdd: it rounds once on some instruction sets and twice on others.

void AddWeighted(float weight, const float* values, float* sum, std::size_t n) {
  const auto w = hn::Set(F32(), weight);
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(sum + i), hn::Mul(w, lanes.load(values + i))), sum + i);
  });
}

void AddDecayed(float decay, const float* x, float* error, std::size_t n) {
  const auto d = hn::Set(F32(), decay);
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Add(hn::Mul(d, lanes.load(error + i)), lanes.load(x + i)), error + i);
  });
}

void AddAndSubtract(float offset, float* values, std::size_t n) {
  const auto o = hn::Set(F32(), offset);
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Sub(hn::Add(lanes.load(values + i), o), o), values + i);
  });
}

void Subtract(const float* said, float* error, std::size_t n) {
  for_lanes(n, [&](std::size_t i, auto lanes) HWY_ATTR {
    lanes.store(hn::Sub(lanes.load(error + i), lanes.load(said + i)), error + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::compress {

HWY_EXPORT(AddWeighted);
HWY_EXPORT(AddDecayed);
HWY_EXPORT(AddAndSubtract);
HWY_EXPORT(Subtract);

void add_weighted(float weight, std::span<const float> values, std::span<float> sum) {
  HWY_DYNAMIC_DISPATCH(AddWeighted)(weight, values.data(), sum.data(), sum.size());
}

void add_decayed(float decay, std::span<const float> x, std::span<float> error) {
  HWY_DYNAMIC_DISPATCH(AddDecayed)(decay, x.data(), error.data(), error.size());
}

void add_and_subtract(float offset, std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(AddAndSubtract)(offset, values.data(), values.size());
}

void subtract(std::span<const float> said, std::span<float> error) {
  HWY_DYNAMIC_DISPATCH(Subtract)(said.data(), error.data(), error.size());
}

}  // namespace atl::compress
#endif  // HWY_ONCE
