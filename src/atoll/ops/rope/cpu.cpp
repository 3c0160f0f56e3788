#include "atoll/ops/rope/cpu.h"

#include <algorithm>

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

// The angles of one position.
struct Angles {
  const float* cosines;
  const float* sines;
  std::size_t num_pairs;
  float sign;  // of the sines: -1 rotates back
};

// Turns the pairs (a, b) from pair i on.
template <class Lanes>
HWY_INLINE void turn(const Angles& angles, std::size_t i, Lanes lanes, Vf& a, Vf& b) {
  const Vf cosine = lanes.load(angles.cosines + i);
  const Vf sine = hn::Mul(hn::Set(F32(), angles.sign), lanes.load(angles.sines + i));
  const Vf turned = hn::NegMulAdd(b, sine, hn::Mul(a, cosine));
  b = hn::MulAdd(a, sine, hn::Mul(b, cosine));
  a = turned;
}

template <class T>
HWY_INLINE void rotate_halves(const Angles& angles, T* head) {
  T* low = head;
  T* high = head + angles.num_pairs;
  for_lanes(angles.num_pairs, [&](std::size_t i, auto lanes) HWY_ATTR {
    Vf a = lanes.load(low + i);
    Vf b = lanes.load(high + i);
    turn(angles, i, lanes, a, b);
    lanes.store(a, low + i);
    lanes.store(b, high + i);
  });
}

// By way of a buffer of f32, as only whole vectors of f32 are taken apart in one instruction.
template <class T>
HWY_INLINE void rotate_neighbours(const Angles& angles, T* head) {
  const F32 d;
  HWY_ALIGN float room[2 * HWY_MAX_BYTES / sizeof(float)] = {};
  for_lanes(angles.num_pairs, [&](std::size_t i, auto lanes) HWY_ATTR {
    const std::size_t size = 2 * std::min(hn::Lanes(d), angles.num_pairs - i);
    T* at = head + 2 * i;
    for_lanes(size, [&](std::size_t j, auto part)
                        HWY_ATTR { hn::StoreU(part.load(at + j), d, room + j); });
    Vf a, b;
    hn::LoadInterleaved2(d, room, a, b);
    turn(angles, i, lanes, a, b);
    hn::StoreInterleaved2(a, b, d, room);
    for_lanes(size, [&](std::size_t j, auto part)
                        HWY_ATTR { part.store(hn::LoadU(d, room + j), at + j); });
  });
}

// One row of qkv.
void RotateRow(const float* table_row, std::int64_t rotated, bool inverse, RotaryPairs pairs,
               const HeadLayout& heads, const Tensor& qkv, std::int64_t row) {
  const auto num_pairs = static_cast<std::size_t>(rotated / 2);
  const Angles angles = {table_row, table_row + num_pairs, num_pairs, inverse ? -1.0F : 1.0F};
  // Query heads and key heads lie one after the other, so they are one list of heads.
  const std::int64_t num_heads = heads.num_heads + heads.num_kv_heads;
  with_storage(qkv.dtype(), [&]<typename T>(T) HWY_ATTR {
    T* first = qkv.data<T>() + row * heads.qkv_width();
    for (std::int64_t head = 0; head < num_heads; ++head) {
      T* at = first + head * heads.head_dim;
      pairs == RotaryPairs::kHalves ? rotate_halves(angles, at) : rotate_neighbours(angles, at);
    }
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
          Tensor qkv, RotaryPairs pairs) {
  const std::int64_t steps = qkv.dim(-2);
  const std::int64_t rotated = table.dim(1);
  const std::int32_t* at = position_data(positions);
  run.threads().run_chunked(
      qkv.shape().num_rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t position = position_of(at, row, steps);
          HWY_DYNAMIC_DISPATCH(RotateRow)
          (table.data<float>() + position * rotated, rotated, inverse, pairs, heads, qkv, row);
        }
      });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
