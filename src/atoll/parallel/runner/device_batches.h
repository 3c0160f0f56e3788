#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "atoll/ops/run.h"
#include "atoll/tensor/batch.h"

namespace atl::parallel {

/// The micro-batches of one call as a GPU's kernels read them. Batches come in memory of the host,
/// which whoever made them uses again: so they go through page-locked memory of two slots in turn,
/// whose last copy is waited for before a slot is written again.
class DeviceBatches {
 public:
  /// The same batches, on the stream's device. On a CPU they are `batches` themselves. Elsewhere
  /// their tokens, targets and positions are checked, since kernels do not, and copies are queued:
  /// what is returned is valid until the next call. Throws Error(kDamaged) as ops on a CPU do for a
  /// token or target outside [0, vocab_size) and for positions that cannot be: of documents, or,
  /// where `cached` rows are in a cache that the batches continue, of the rows behind those. Of
  /// parts of sequences that ranks share, the positions of the whole ones are checked.
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
