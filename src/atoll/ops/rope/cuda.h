#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/rope/rope.h"

namespace atl::ops::cuda {

/// Operands as in ops/rope/rope.h.
Declined rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
              Tensor qkv, RotaryPairs pairs);

}  // namespace atl::ops::cuda
