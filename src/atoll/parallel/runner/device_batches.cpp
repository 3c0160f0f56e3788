#include "atoll/parallel/runner/device_batches.h"

#include "atoll/ops/cross_entropy/args.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/positions.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

// The tensors of a batch; some may be undefined.
constexpr Tensor Batch::*kTensors[] = {&Batch::tokens, &Batch::targets, &Batch::positions,
                                       &Batch::sequence_positions};

void check_places(const Tensor& positions, std::int64_t cached, std::int64_t T) {
  if (!positions.defined()) return;
  const HostRead read(positions);
  for (std::int64_t row = 0; row < positions.num_elements(); ++row) {
    const std::int32_t position = read.elements<std::int32_t>()[static_cast<std::size_t>(row)];
    ATOLL_CHECK(position == cached + row % T, "position {} at place {} of a cache", position,
                cached + row % T);
  }
}

void check_whole_documents(const Tensor& positions) {
  if (!positions.defined()) return;
  ops::check_documents("a batch", positions, positions.num_elements(), positions.dim(1));
}

void check(const Batch& batch, std::int64_t vocab_size, std::optional<std::int64_t> cached,
           bool is_part) {
  ops::check_tokens(batch.tokens, vocab_size);
  if (batch.targets.defined()) ops::check_targets(batch.targets, vocab_size);
  const std::int64_t rows = batch.tokens.num_elements();
  if (cached) return check_places(batch.positions, *cached, batch.tokens.dim(1));
  if (is_part) return check_whole_documents(batch.sequence_positions);
  ops::check_documents("a batch", batch.positions, rows, batch.tokens.dim(1));
}

}  // namespace

void DeviceBatches::reserve(Device& device, std::size_t bytes) {
  if (device_.bytes() >= bytes) return;
  device_ = Buffer(device, bytes);
  for (Slot& slot : slots_) {
    if (slot.copied != nullptr) slot.copied->wait();
    slot.host = Buffer(device, bytes, MemoryKind::kHost);
    slot.copied = device.make_event();
  }
}

std::span<const Batch> DeviceBatches::on_device(Run& run, std::span<const Batch> batches,
                                                std::int64_t vocab_size,
                                                std::optional<std::int64_t> cached,
                                                bool are_parts) {
  Device& device = run.stream->device();
  if (device.kind() == DeviceKind::kCpu) return batches;
  std::size_t bytes = 0;
  for (const Batch& batch : batches) {
    check(batch, vocab_size, cached, are_parts);
    for (const auto tensor : kTensors) bytes += align_up((batch.*tensor).bytes());
  }
  reserve(device, bytes);
  Slot& slot = slots_[next_slot_++ % 2];
  slot.copied->wait();
  batches_.assign(batches.begin(), batches.end());
  std::size_t at = 0;
  for (Batch& batch : batches_) {
    for (const auto tensor : kTensors) {
      Tensor& from = batch.*tensor;
      if (!from.defined()) continue;
      const Tensor staged(static_cast<std::byte*>(slot.host.data()) + at, from.spec());
      const Tensor there(static_cast<std::byte*>(device_.data()) + at, from.spec(), &device);
      copy_now(from, staged);
      queue_copy(*run.stream, staged, there);
      at += align_up(from.bytes());
      from = there;
    }
  }
  slot.copied->record(*run.stream);
  return batches_;
}

}  // namespace atl::parallel
