#pragma once

// The parameters of an update, one element at a time.

#include <type_traits>

#include "atoll/ops/update/update_target.h"

namespace atl::ops::ref {

/// Calls update(i, p) -> the new p, in T, for each element of `target` (whose compute dtype T is)
/// and puts the result where and as the target keeps it.
template <typename T, typename Update>
void update_each(const UpdateTarget& target, Update&& update) {
  const std::int64_t size = target.size();
  if (target.values.dtype() == dtype_of<T>()) {
    T* values = target.values.data<T>();
    for (std::int64_t i = 0; i < size; ++i) values[i] = update(i, values[i]);
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    Bf16* values = target.values.data<Bf16>();
    if (target.master.defined()) {
      float* master = target.master.data<float>();
      for (std::int64_t i = 0; i < size; ++i) {
        master[i] = update(i, master[i]);
        values[i] = to_bf16(master[i]);
      }
      return;
    }
    for (std::int64_t i = 0; i < size; ++i) {
      const std::uint16_t draw = rounding_draw(target.rounding, target.first_element + i);
      values[i] = to_bf16_stochastic(update(i, to_f32(values[i])), draw);
    }
  }
}

}  // namespace atl::ops::ref
