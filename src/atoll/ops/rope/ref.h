#pragma once

// Rotary position embedding as its definition says, for any storage of qkv, in its compute type.

#include "atoll/ops/positions.h"
#include "atoll/ops/rope/rope.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// See ops/rope/rope.h.
template <typename T>
void rope(const HeadLayout& heads, Tensor table, Tensor positions, bool inverse, Tensor qkv,
          RotaryPairs pairs = RotaryPairs::kHalves) {
  using A = Compute<T>;
  const std::int64_t half = table.dim(1) / 2;
  const bool is_halves = pairs == RotaryPairs::kHalves;
  // From a pair to the next, and between the two elements of a pair.
  const std::int64_t step = is_halves ? 1 : 2, apart = is_halves ? half : 1;
  const std::int64_t steps = qkv.dim(-2);  // T, the length of each sequence
  const std::int32_t* at = position_data(positions);
  for (std::int64_t row = 0; row < qkv.shape().num_rows(); ++row) {
    const std::int64_t position = position_of(at, row, steps);
    const A* cosine = table.data<A>() + position * table.dim(1);
    const A* sine = cosine + half;
    for (std::int64_t head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
      T* first = qkv.data<T>() + row * heads.qkv_width() + head * heads.head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        T& low = first[i * step];
        T& high = first[i * step + apart];
        const A s = inverse ? -sine[i] : sine[i];
        const A a = widen(low);
        const A b = widen(high);
        low = narrow<T>(a * cosine[i] - b * s);
        high = narrow<T>(b * cosine[i] + a * s);
      }
    }
  }
}

}  // namespace atl::ops::ref
