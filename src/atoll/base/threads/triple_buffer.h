#pragma once

// The newest value of one thread, for another, without a lock: nobody waits for anybody.

#include <array>
#include <atomic>

namespace atl {

/// Three values: one is written, one is read, and one lies between, the newest that is whole. The
/// writer and the reader change places with the one between by a single atomic exchange, so the
/// writer never waits, whatever the reader does. One writer and one reader at a time.
template <typename T>
class TripleBuffer {
 public:
  /// Of the writer: the value to write. It holds what was published some time before.
  T& back() { return values_[back_]; }
  /// Of the writer: back() is the newest now.
  void publish() { back_ = between_.exchange(back_ | kIsNew, std::memory_order_acq_rel) & kPlace; }
  /// Of the reader: the newest; it stays as it is until the next call.
  const T& newest() {
    if ((between_.load(std::memory_order_relaxed) & kIsNew) != 0) {
      front_ = between_.exchange(front_, std::memory_order_acq_rel) & kPlace;
    }
    return values_[front_];
  }

 private:
  static constexpr unsigned kPlace = 3;
  static constexpr unsigned kIsNew = 4;

  std::array<T, 3> values_ = {};
  unsigned back_ = 0;
  unsigned front_ = 2;
  std::atomic<unsigned> between_ = 1;
};

}  // namespace atl
