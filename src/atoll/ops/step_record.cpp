#include "atoll/ops/step_record.h"

namespace atl::ops {

StepRecord::StepRecord(Device& device) : device_(device, kCapacity) {
  for (Slot& slot : slots_) {
    slot.host = Buffer(device, kCapacity, MemoryKind::kHost);
    slot.copied = device.make_event();
  }
}

StepRecord::~StepRecord() {
  for (Slot& slot : slots_) {
    try {
      slot.copied->wait();
    } catch (...) {  // whoever wanted the step's results has been told
    }
  }
}

const void* StepRecord::place(std::size_t bytes, Write write) {
  const std::size_t offset = used_;
  used_ = (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
  ATOLL_CHECK(used_ <= kCapacity, "a step has more than {} operands that differ from step to step",
              entries_.size());
  entries_.push_back({offset, std::move(write)});
  return static_cast<const std::byte*>(device_.data()) + offset;
}

void StepRecord::write(const Run& run) {
  if (entries_.empty()) return;
  Slot& slot = slots_[next_slot_++ % 2];
  slot.copied->wait();
  auto* const host = static_cast<std::byte*>(slot.host.data());
  for (const Entry& entry : entries_) entry.write(run, host + entry.offset);
  run.stream->copy(device_.data(), host, used_);
  slot.copied->record(*run.stream);
}

}  // namespace atl::ops
