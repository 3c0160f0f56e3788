#include "atoll/parallel/context_share.h"

#include "atoll/base/check.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

ContextShare::ContextShare(Device& device, int num_ranks, int rank, std::int64_t batch,
                           std::int64_t length)
    : first_(rank * (length / num_ranks)), part_{Dtype::kI32, {batch, length / num_ranks}} {
  ATOLL_CHECK(length % num_ranks == 0, "{} tokens over {} ranks", length, num_ranks);
  for (Buffer* memory : {&tokens_, &targets_, &positions_}) {
    *memory = Buffer(device, part_.bytes(), MemoryKind::kHost);
  }
}

Tensor ContextShare::rows_of(const Tensor& whole, const Buffer& memory) const {
  const Tensor part = tensor_in(memory, part_);
  for (std::int64_t b = 0; b < part_.shape.dim(0); ++b) {
    const std::int64_t length = part_.shape.dim(1);
    const Tensor row = whole.rows(b, b + 1).reshaped({whole.dim(1)});
    copy_now(row.rows(first_, first_ + length), part.rows(b, b + 1).reshaped({length}));
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
  const std::int64_t length = part_.shape.dim(1);
  write_on_host<std::int32_t>(part.positions, [&](std::span<std::int32_t> to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<std::int32_t>(first_ + static_cast<std::int64_t>(i) % length);
    }
  });
  return part;
}

}  // namespace atl::parallel
