#pragma once

#include <cstdint>

#include "atoll/tensor/tensor.h"

namespace atl {

/// The target of a position that has no loss (padding, a masked prompt).
constexpr std::int32_t kIgnoreTarget = -1;

/// One micro-batch of token sequences. Views into memory that the loader owns.
struct Batch {
  Tensor tokens;                  ///< i32 (B, T)
  Tensor targets;                 ///< i32 (B, T): the next token, or kIgnoreTarget
  std::int64_t first_sample = 0;  ///< global index of row 0 in the run's sample order
};

}  // namespace atl
