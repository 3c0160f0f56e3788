#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "atoll/ops/run.h"
#include "atoll/tensor/batch.h"

namespace atl::parallel {

/// Copies micro-batches from the host to a GPU. The caller may change the host memory of its
/// batches as soon as the call returns: copies go through two page-locked buffers in turn. A call
/// waits until the last copy from its buffer has ended.
class DeviceBatches {
 public:
  /// Returns the same batches on the stream's device. On a CPU these are `batches` themselves. For
  /// a GPU this checks tokens, targets and positions, since kernels do not, and queues copies; the
  /// result is valid until the next call. `cached`: the batches continue a cache of so many
  /// positions. `are_parts`: this rank has a part of each sequence (context parallel), so
  /// Batch::sequence_positions are checked. Throws Error(kDamaged), as ops on a CPU do, for a token
  /// or target outside [0, vocab_size) or impossible positions of documents; Error(kInternal) for
  /// positions that do not continue the cache.
  std::span<const Batch> on_device(Run& run, std::span<const Batch> batches,
                                   std::int64_t vocab_size, std::optional<std::int64_t> cached = {},
                                   bool are_parts = false);

 private:
  struct Slot {
    Buffer host;
    std::unique_ptr<Event> copied;
  };

  void reserve(Device& device, std::size_t bytes);

  Slot slots_[2];
  std::size_t next_slot_ = 0;
  Buffer device_;
  std::vector<Batch> batches_;
};

}  // namespace atl::parallel
