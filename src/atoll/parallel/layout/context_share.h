#pragma once

#include <cstdint>
#include <vector>

#include "atoll/device/device.h"
#include "atoll/tensor/arena.h"
#include "atoll/tensor/batch.h"
#include "atoll/tensor/sequence_part.h"

namespace atl::parallel {

/// This rank's part of micro-batches whose sequences several ranks share (context parallel).
class ContextShare {
 public:
  /// Of micro-batches of (batch, length) tokens; share.divisor() divides length. Memory is the
  /// host's.
  ContextShare(Device& device, const SequencePart& share, std::int64_t batch, std::int64_t length);

  /// The part of `whole`, with the positions of its tokens. Valid until the next call, and no
  /// longer than `whole`.
  Batch of(const Batch& whole) const;

 private:
  Tensor rows_of(const Tensor& whole, const Buffer& memory) const;

  std::vector<TokenStretch> stretches_;  // of each sequence
  Spec part_;                            // i32 (batch, length / num_ranks)
  Buffer tokens_, targets_, positions_;
};

}  // namespace atl::parallel
