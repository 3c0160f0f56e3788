#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/collective.h"
#include "atoll/comm/collectives/call_header.h"
#include "atoll/comm/wait_word.h"

namespace atl::comm {

/// A message from one rank to another. It stays in the sender's memory until the receiver has
/// copied it.
struct PostedMessage {
  const void* data = nullptr;
  std::size_t bytes = 0;
  std::optional<Spec> spec;  ///< where it is a tensor
};

/// Messages from one rank to one other, in order.
struct MessageQueue {
  std::mutex mutex;
  std::vector<PostedMessage> messages;  // from `first`; guarded by mutex
  std::size_t first = 0;                // guarded by mutex
  std::atomic<std::uint64_t> num_posted{0};
  std::atomic<std::uint64_t> num_taken{0};
};

/// What a rank shows to all others.
struct alignas(128) RankState {
  WaitWord wakeup;                 ///< changes when something that this rank may wait for changes
  std::atomic<bool> ended{false};  ///< it makes no more calls
  /// 1 while it reads or writes memory of other ranks. Away from the words that others read often.
  alignas(128) std::atomic<std::uint32_t> accessing{0};
  std::atomic<bool> in_call{false};  ///< the last call still runs
  std::mutex mutex;                  ///< guards what follows
  CallHeader header;                 ///< of its last call
};

/// What one rank tells one other at the barriers of a collective. It has a cache line of its own,
/// so that a small collective reads one line for each other rank.
struct alignas(64) BarrierSlot {
  /// How many barriers with the other rank this rank has come to. Written last; two ranks are in
  /// the same call when their counts are equal.
  std::atomic<std::uint64_t> count{0};
  /// The call that the rank is in, between its first barrier and its last.
  const Collective* call = nullptr;
  std::byte* data = nullptr;      ///< of the call
  std::uint64_t fingerprint = 0;  ///< of the call's header
};

/// What the ranks of run_threads() share for the calls of one Channel: one object for all of them.
/// The first one of a world owns those that open() makes; an abort ends all of them together.
class ThreadChannel {
 public:
  ThreadChannel(int size, double timeout_s) : ThreadChannel(size, timeout_s, nullptr) {}

  /// The one for another Channel between these ranks. The rank that asks first makes it.
  ThreadChannel& open(int number, std::span<const int> members);

  int size() const { return size_; }
  double timeout_s() const { return timeout_s_; }
  RankState& rank(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  /// What rank `from` tells rank `with`; only `from` writes it.
  BarrierSlot& barrier_slot(int from, int with) { return barrier_slots_[index(from, with)]; }
  /// Whether each rank can have a core of its own, so that a rank that waits may keep its core
  /// busy.
  bool has_a_core_each() const { return has_a_core_each_; }
  MessageQueue& queue(int from, int to) { return queues_[index(from, to)]; }

  /// Ends all collectives of all channels, now and later, because `rank` has failed; the first call
  /// counts.
  void abort(int rank, const std::string& why) noexcept;
  bool aborted() const { return first_.aborted_.load(std::memory_order_seq_cst); }
  /// Once aborted: who, and why.
  int aborted_by() const { return first_.aborted_by_; }
  const std::string& why() const { return first_.why_; }
  /// `rank` makes no more calls.
  void end(int rank) noexcept;

 private:
  ThreadChannel(int size, double timeout_s, ThreadChannel* first);

  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) +
           static_cast<std::size_t>(to);
  }
  void wake_all() noexcept;

  ThreadChannel& first_;  // the world's first one, maybe this
  int size_;
  double timeout_s_;
  bool has_a_core_each_;
  std::unique_ptr<RankState[]> ranks_;
  std::unique_ptr<BarrierSlot[]> barrier_slots_;
  std::unique_ptr<MessageQueue[]> queues_;
  // Only those of the first one are used.
  std::mutex mutex_;
  std::map<std::array<int, 3>, std::unique_ptr<ThreadChannel>> channels_;  // guarded by mutex_
  std::atomic<bool> aborted_{false};
  int aborted_by_ = -1;
  std::string why_;
};

}  // namespace atl::comm
