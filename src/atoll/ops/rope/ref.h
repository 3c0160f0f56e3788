#pragma once

// Rotary position embedding as its definition says, for any storage of qkv, in its compute type.

#include "atoll/ops/positions.h"
#include "atoll/ops/rope/rope.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// See ops/rope/rope.h.
template <typename T>
void rope(const HeadLayout& heads, Tensor table, Tensor positions, bool inverse, Tensor qkv) {
  using A = Compute<T>;
  const std::int64_t half = heads.head_dim / 2;
  const std::int64_t steps = qkv.dim(-2);  // T, the length of each sequence
  const std::int32_t* at = position_data(positions);
  for (std::int64_t row = 0; row < qkv.shape().num_rows(); ++row) {
    const std::int64_t position = position_of(at, row, steps);
    const A* cosine = table.data<A>() + position * heads.head_dim;
    const A* sine = cosine + half;
    for (std::int64_t head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
      T* low = qkv.data<T>() + row * heads.qkv_width() + head * heads.head_dim;
      T* high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const A s = inverse ? -sine[i] : sine[i];
        const A a = widen(low[i]);
        const A b = widen(high[i]);
        low[i] = narrow<T>(a * cosine[i] - b * s);
        high[i] = narrow<T>(b * cosine[i] + a * s);
      }
    }
  }
}

}  // namespace atl::ops::ref
