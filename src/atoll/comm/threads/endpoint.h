#pragma once

#include <functional>
#include <string>

#include "atoll/comm/threads/thread_channel.h"

namespace atl::comm {

/// One rank's end of a ThreadChannel: its barriers with the others, and how it waits for them.
class Endpoint {
 public:
  Endpoint(ThreadChannel& channel, int rank);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  ThreadChannel& channel() const { return channel_; }
  int rank() const { return rank_; }
  RankState& state() const { return channel_.rank(rank_); }

  /// Notes what this rank calls; `collective` must stay until leave() or give_up().
  void enter(const Collective& collective);
  void leave();
  /// The barrier before the data moves: shows the call to all its members and returns when they
  /// have come to it too. Throws PeerError when one of them calls something else.
  void enter_barrier(const Collective& collective);
  /// The barrier after the data has moved: returns when all members have come to the end of the
  /// call.
  void leave_barrier(const Collective& collective);
  /// What another member of the call shows between the two barriers.
  const BarrierSlot& of(const Collective& collective, int member) const {
    return channel_.barrier_slot(collective.members[static_cast<std::size_t>(member)], rank_);
  }
  /// Returns once missing(), which names a rank that this one waits for, is -1. Throws PeerError
  /// when that rank has ended or does not come within the timeout, or when any rank has given up.
  template <typename Missing>
  void wait_for(const Missing& missing) {
    if (missing() >= 0) wait_long(std::cref(missing));
  }
  /// Tells all others that this rank ends with an error. Returns when no other rank accesses this
  /// rank's memory any more.
  void give_up(const std::string& why) noexcept;
  /// "its last call was all_reduce #17 ...".
  std::string last_call_of(int rank) const;

  /// While the object lives, this rank may read and write memory that the others have shown: a rank
  /// that gives up waits for its end. Throws PeerError when a rank has given up before.
  class MemoryAccess {
   public:
    explicit MemoryAccess(Endpoint& endpoint);
    ~MemoryAccess() { end(); }
    MemoryAccess(const MemoryAccess&) = delete;
    MemoryAccess& operator=(const MemoryAccess&) = delete;

   private:
    void end();

    Endpoint& endpoint_;
    std::atomic<std::uint32_t>& word_;
  };

 private:
  void arrive(const Collective& collective);
  void wait_for_all(const Collective& collective);
  void compare(const Collective& collective) const;
  void wait_long(const std::function<int()>& missing);
  void sleep_for(const std::function<int()>& missing);
  [[noreturn]] void throw_aborted() const;

  ThreadChannel& channel_;
  int rank_;
  std::uint64_t fingerprint_ = 0;  // of the call it is in
};

}  // namespace atl::comm
