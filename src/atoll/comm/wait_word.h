#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace atl::comm {

/// A word that one thread or process sleeps on until another changes it: a futex, because standard
/// atomics cannot wait with a deadline. Zeroed memory is a valid one, also shared between
/// processes.
class WaitWord {
 public:
  enum class Among : std::uint8_t { kThreads, kProcesses };

  std::uint32_t value() const { return value_.load(std::memory_order_seq_cst); }
  /// Changes it, and wakes whoever sleeps.
  void bump(Among among = Among::kThreads);
  /// Sleeps while it is `seen`, until `deadline` at most; may return early. False: too late.
  bool wait(std::uint32_t seen, std::chrono::steady_clock::time_point deadline,
            Among among = Among::kThreads);

 private:
  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(WaitWord) == 8);

}  // namespace atl::comm
