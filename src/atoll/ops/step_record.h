#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "atoll/ops/run.h"

namespace atl::ops {

/// The device's record of a step: operands of kernels that differ from step to step, in memory of
/// the device. A graph of a GPU's work has its kernels' own operands as they were when it was
/// captured; from a record its kernels read those of the step at hand. Each of them is worked out
/// by the host, as for a launch without a graph, so it is the same to the bit.
class StepRecord {
 public:
  /// What a record holds at most, in bytes.
  static constexpr std::size_t kCapacity = std::size_t{64} << 10;

  /// Takes its memory from `device`, which must outlive it. Throws Error(kResource).
  explicit StepRecord(Device& device);
  /// Waits for the copies under way.
  ~StepRecord();
  StepRecord(const StepRecord&) = delete;
  StepRecord& operator=(const StepRecord&) = delete;

  /// The place of another operand, which is make(run) of each step. `make` may use seed, step,
  /// first_sample and loss_scale of the Run that it gets, and nothing else of it.
  template <typename Make>
  auto add(Make make) {
    using T = std::invoke_result_t<Make, const Run&>;
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    return static_cast<const T*>(place(sizeof(T), [make](const Run& run, void* to) {
      const T value = make(run);
      std::memcpy(to, &value, sizeof value);
    }));
  }

  /// Queues one copy of all operands, as they are in this step, to the device. It may be called
  /// again before the last one is there.
  void write(const Run& run);
  /// How many there are.
  std::size_t size() const { return entries_.size(); }

 private:
  static constexpr std::size_t kAlignment = 64;
  using Write = std::function<void(const Run&, void* to)>;
  struct Entry {
    std::size_t offset;
    Write write;
  };
  struct Slot {
    Buffer host;
    std::unique_ptr<Event> copied;
  };

  const void* place(std::size_t bytes, Write write);

  std::vector<Entry> entries_;
  std::size_t used_ = 0;
  Buffer device_;
  Slot slots_[2];  // in turn: one is written while the other may still be copied
  std::size_t next_slot_ = 0;
};

}  // namespace atl::ops
