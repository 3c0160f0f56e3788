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
  /// Changes the word, and wakes all threads that sleep on it.
  void bump(Among among = Among::kThreads);
  /// bump() while a Watch exists, otherwise nothing. Call it after a sequentially consistent store
  /// of what the Watch waits for.
  void bump_if_watched(Among among = Among::kThreads) {
    if (watchers_.load(std::memory_order_seq_cst) != 0) bump(among);
  }

  /// While it lives, bump_if_watched() is bump(). So a value that is read, sequentially consistent,
  /// after the Watch began either is the new one, or the word changes when it becomes so.
  class Watch {
   public:
    explicit Watch(WaitWord& word) : word_(word) {
      word_.watchers_.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Watch() { word_.watchers_.fetch_sub(1, std::memory_order_seq_cst); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    WaitWord& word_;
  };
  /// Sleeps while it is `seen`, until `deadline` at most; may return early. False: too late.
  bool wait(std::uint32_t seen, std::chrono::steady_clock::time_point deadline,
            Among among = Among::kThreads);

 private:
  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> watchers_{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace atl::comm
