#include "atoll/ops/rope/cpu.h"

#include "atoll/ops/positions.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/rope/cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

// Rotates num_heads heads of 2 * half elements, one after the other, by the angles of one position.
template <class T>
void rotate_heads(const float* table_row, bool inverse, std::size_t num_heads, std::size_t half,
                  T* heads) {
  const Vf sign = hn::Set(F32(), inverse ? -1.0F : 1.0F);
  for (std::size_t head = 0; head < num_heads; ++head) {
    T* low = heads + head * 2 * half;
    T* high = low + half;
    for_lanes(half, [&](std::size_t i, auto lanes) HWY_ATTR {
      const Vf cosine = lanes.load(table_row + i);
      const Vf sine = hn::Mul(sign, lanes.load(table_row + half + i));
      const Vf a = lanes.load(low + i);
      const Vf b = lanes.load(high + i);
      lanes.store(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), low + i);
      lanes.store(hn::MulAdd(a, sine, hn::Mul(b, cosine)), high + i);
    });
  }
}

// One row of qkv.
void RotateRow(const float* table_row, bool inverse, const HeadLayout& heads, const Tensor& qkv,
               std::int64_t row) {
  // Query heads and key heads lie one after the other, so they are one list of heads.
  const auto num_heads = static_cast<std::size_t>(heads.num_heads + heads.num_kv_heads);
  with_storage(qkv.dtype(), [&]<typename T>(T) HWY_ATTR {
    rotate_heads(table_row, inverse, num_heads, static_cast<std::size_t>(heads.head_dim / 2),
                 qkv.data<T>() + row * heads.qkv_width());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(RotateRow);

constexpr std::int64_t kRowsPerTask = 16;

}  // namespace

void rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
          Tensor qkv) {
  const std::int64_t steps = qkv.dim(-2);
  const std::int32_t* at = position_data(positions);
  run.threads().run_chunked(
      qkv.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t position = position_of(at, row, steps);
          HWY_DYNAMIC_DISPATCH(RotateRow)
          (table.data<float>() + position * heads.head_dim, inverse, heads, qkv, row);
        }
      });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
