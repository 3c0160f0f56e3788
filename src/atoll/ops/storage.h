#pragma once

// Elements as they are stored and as they are computed with: bf16 is widened when it is read and
// rounded once when it is written, and nothing in between is ever rounded to it.

#include <type_traits>

#include "atoll/simd/bf16.h"

namespace atl::ops {

/// The C++ type behind compute_dtype: what arithmetic on elements stored as T runs in.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;

/// The number that is stored, exactly.
template <typename T>
Compute<T> widen(T stored) {
  if constexpr (std::is_same_v<T, Bf16>)
    return to_f32(stored);
  else
    return stored;
}

/// The nearest number that T stores, ties to even.
template <typename T>
T narrow(Compute<T> value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return to_bf16(value);
  else
    return value;
}

}  // namespace atl::ops
