#pragma once

// Rotary position embedding of f32 and bf16 on vector units; arguments as in ops/rope/rope.h,
// already checked.

#include "atoll/ops/rope/rope.h"

namespace atl::ops::cpu {

void rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
          Tensor qkv, RotaryPairs pairs);

}  // namespace atl::ops::cpu
