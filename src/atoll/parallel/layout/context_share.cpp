#include "atoll/parallel/layout/context_share.h"

#include <numeric>

#include "atoll/tensor/host_access.h"

namespace atl::parallel {

ContextShare::ContextShare(Device& device, const SequencePart& share, std::int64_t batch,
                           std::int64_t length)
    : part_{Dtype::kI32, {batch, length / share.num_ranks}} {
  const auto stretches = share.stretches(length);
  stretches_.assign(stretches.begin(), stretches.begin() + share.num_stretches());
  for (Buffer* memory : {&tokens_, &targets_, &positions_}) {
    *memory = Buffer(device, part_.bytes(), MemoryKind::kHost);
  }
}

Tensor ContextShare::rows_of(const Tensor& whole, const Buffer& memory) const {
  const Tensor part = tensor_in(memory, part_);
  for (std::int64_t b = 0; b < part_.shape.dim(0); ++b) {
    const Tensor from = whole.rows(b, b + 1).reshaped({whole.dim(1)});
    const Tensor to = part.rows(b, b + 1).reshaped({part.dim(1)});
    std::int64_t row = 0;
    for (const TokenStretch& stretch : stretches_) {
      copy_now(from.rows(stretch.first, stretch.first + stretch.count),
               to.rows(row, row + stretch.count));
      row += stretch.count;
    }
  }
  return part;
}

Batch ContextShare::of(const Batch& whole) const {
  Batch part = whole;
  part.tokens = rows_of(whole.tokens, tokens_);
  part.targets = rows_of(whole.targets, targets_);
  if (whole.positions.defined()) {
    part.positions = rows_of(whole.positions, positions_);
    part.sequence_positions = whole.positions;
    return part;
  }
  part.positions = tensor_in(positions_, part_);
  write_on_host<std::int32_t>(part.positions, [&](std::span<std::int32_t> to) {
    auto next = to.begin();
    for (std::int64_t b = 0; b < part_.shape.dim(0); ++b) {
      for (const TokenStretch& stretch : stretches_) {
        std::iota(next, next + stretch.count, static_cast<std::int32_t>(stretch.first));
        next += stretch.count;
      }
    }
  });
  return part;
}

}  // namespace atl::parallel
