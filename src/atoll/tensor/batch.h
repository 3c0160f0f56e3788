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
  /// i32 (B, T): the position of each token in its document. Rotation and learned positions take
  /// it, and attention reads nothing before position 0. Undefined: token t of each row is at t. A
  /// batch that continues a cache (nn::KvCache) has positions from the cache's length on.
  Tensor positions;
  /// i32 (B, T of whole sequences): the positions in sequences of which this rank has a part
  /// (context parallel), where these have several documents. Else undefined.
  Tensor sequence_positions;
  /// Positions with a target in the whole optimizer step this batch is part of, over all
  /// micro-batches and ranks; 0: all of them have one.
  std::int64_t step_targets = 0;
};

}  // namespace atl
