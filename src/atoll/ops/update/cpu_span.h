#pragma once

// An UpdateTarget as the vector kernels see it.

#include <array>

#include "atoll/ops/update/update_target.h"

namespace atl::ops::cpu {

/// Consecutive parameters: `wide` alone, `wide` and `narrow` (masters and bf16 values), or `narrow`
/// alone, rounded by draws.
struct UpdateSpan {
  float* wide = nullptr;
  std::uint16_t* narrow = nullptr;
  std::uint64_t first_element = 0;  ///< the draw of narrow[0]
  std::array<std::uint32_t, 2> key = {};
  std::array<std::uint32_t, 2> salt = {};
};

/// Elements of one task of an update.
constexpr std::int64_t kElementsPerUpdate = 16384;

/// The elements of `target` from `begin` on; its compute dtype is f32.
inline UpdateSpan span_from(const UpdateTarget& target, std::int64_t begin) {
  UpdateSpan span;
  if (target.values.dtype() == Dtype::kBf16) {
    span.narrow = static_cast<std::uint16_t*>(target.values.raw()) + begin;
    if (target.master.defined()) span.wide = target.master.data<float>() + begin;
  } else {
    span.wide = target.values.data<float>() + begin;
  }
  span.first_element = static_cast<std::uint64_t>(target.first_element + begin);
  span.key = target.rounding.key();
  span.salt = target.rounding.salt();
  return span;
}

}  // namespace atl::ops::cpu
