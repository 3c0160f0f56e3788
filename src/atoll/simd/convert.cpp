#include "atoll/simd/convert.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/simd/convert.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/simd/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::simd {
namespace HWY_NAMESPACE {

template <class From, class To>
HWY_INLINE void convert_rows(std::size_t rows, std::size_t cols, MatrixRows<const From> from,
                             MatrixRows<To> to) {
  for (std::size_t row = 0; row < rows; ++row) {
    const From* source = from.data + row * from.stride;
    To* target = to.data + row * to.stride;
    for_lanes(cols, [&](std::size_t i, auto lanes)
                        HWY_ATTR { lanes.store(lanes.load(source + i), target + i); });
  }
}

void WidenRows(std::size_t rows, std::size_t cols, MatrixRows<const Bf16> from,
               MatrixRows<float> to) {
  convert_rows(rows, cols, from, to);
}

void NarrowRows(std::size_t rows, std::size_t cols, MatrixRows<const float> from,
                MatrixRows<Bf16> to) {
  convert_rows(rows, cols, from, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::simd {

HWY_EXPORT(WidenRows);
HWY_EXPORT(NarrowRows);

void widen_rows(std::size_t rows, std::size_t cols, MatrixRows<const Bf16> from,
                MatrixRows<float> to) {
  HWY_DYNAMIC_DISPATCH(WidenRows)(rows, cols, from, to);
}

void narrow_rows(std::size_t rows, std::size_t cols, MatrixRows<const float> from,
                 MatrixRows<Bf16> to) {
  HWY_DYNAMIC_DISPATCH(NarrowRows)(rows, cols, from, to);
}

}  // namespace atl::simd
#endif  // HWY_ONCE
