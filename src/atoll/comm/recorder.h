#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
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
  std::chrono::steady_clock::time_point queued, started, ended;
};

/// The flight recorder: the last collectives of a rank, with their times. Safe to read while the
/// rank works.
class Recorder {
 public:
  static constexpr std::size_t kKept = 256;

  /// Notes a call; returns its number, which the functions below take.
  std::uint64_t queued(const Collective& collective);
  void started(std::uint64_t number);
  void ended(std::uint64_t number, bool failed);

  /// Oldest first, at most kKept.
  std::vector<RecordedCall> calls() const;
  /// Seconds in which any collective ran, since the beginning.
  double busy_seconds() const;
  /// The last ones as lines for people, newest last.
  std::string describe(std::size_t most = 16) const;

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedCall> ring_;
  std::uint64_t next_ = 0;
  double busy_seconds_ = 0;
};

}  // namespace atl::comm
