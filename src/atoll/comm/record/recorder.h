#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "atoll/comm/collective.h"

namespace atl::comm {

/// A collective as the record keeps it.
struct RecordedCall {
  enum class State : std::uint8_t { kQueued, kRunning, kDone, kFailed };

  Op op = Op::kBarrier;
  std::uint64_t sequence = 0;
  std::string group;
  Spec spec;  ///< of data, or of result where there is no data
  Where where;
  State state = State::kQueued;
  bool beside = false;  ///< it runs on the World's thread, beside the caller
  std::chrono::steady_clock::time_point queued, started, ended;
};

/// The flight recorder: the last collectives of a rank, with their times. Safe to read while the
/// rank works.
class Recorder {
 public:
  /// Of those that have ended; one that has not is kept, and all after it.
  static constexpr std::size_t kKept = 256;

  /// Notes a call; returns its number, which the functions below take.
  std::uint64_t queued(const Collective& collective);
  /// queued() and, by the same thread at the same moment, started().
  std::uint64_t begun(const Collective& collective);
  void started(std::uint64_t number);
  void ended(std::uint64_t number, bool failed);
  /// `listener` hears of every call that ends from now on, on the thread on which it ran, which
  /// waits for it; empty: nobody does, from when this returns. It must not ask this Recorder.
  void listen(std::function<void(const RecordedCall& call)> listener);

  /// Oldest first.
  std::vector<RecordedCall> calls() const;
  /// Seconds in which any collective ran, since the beginning.
  double busy_seconds() const;
  /// The last ones as lines for people, newest last.
  std::string describe(std::size_t most = 16) const;

 private:
  mutable std::mutex mutex_;
  struct Entry {
    RecordedCall call;
    std::thread::id caller;
  };

  Entry& at(std::uint64_t number) { return ring_[number % ring_.size()]; }
  const Entry& at(std::uint64_t number) const { return ring_[number % ring_.size()]; }
  Entry& add(const Collective& collective, RecordedCall::State state);
  void make_room();

  std::vector<Entry> ring_;  // at(first_) to at(next_ - 1)
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
  double busy_seconds_ = 0;
  std::function<void(const RecordedCall& call)> listener_;
};

}  // namespace atl::comm
