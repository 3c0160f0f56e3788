#pragma once

#include <functional>
#include <string>

#include "atoll/comm/threads/hub.h"

namespace atl::comm {

/// One rank at the hub: how it waits for the others and lets them know.
class Presence {
 public:
  Presence(Hub& hub, int rank);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  Hub& hub() const { return hub_; }
  int rank() const { return rank_; }
  RankState& state() const { return hub_.rank(rank_); }

  /// Notes what this rank calls; `collective` must stay until leave() or give_up().
  void enter(const Collective& collective);
  void leave();
  /// Shows the call to all its members and returns when they have come to it too. Throws PeerError
  /// when one of them calls something else.
  void meet_in(const Collective& collective);
  /// Returns when all members have come to the end of the call.
  void meet_again(const Collective& collective);
  /// What another member of the call shows between the two.
  const Meeting& of(const Collective& collective, int member) const {
    return hub_.meeting(collective.members[static_cast<std::size_t>(member)], rank_);
  }
  /// Returns once missing(), which names a rank that this one waits for, is -1. Throws PeerError
  /// when that rank has ended, is not here within the timeout, or when any has given up.
  template <typename Missing>
  void wait_for(const Missing& missing) {
    if (missing() >= 0) wait_long(std::cref(missing));
  }
  /// Tells all others, and returns when none touches memory of this rank any more.
  void give_up(const std::string& why) noexcept;
  /// "its last call was all_reduce #17 ...".
  std::string last_call_of(int rank) const;

  /// While it lives, this rank may read and write memory that the others have shown: who gives up
  /// waits for it. Throws PeerError when one has given up before.
  class Touch {
   public:
    explicit Touch(Presence& presence);
    ~Touch() { end(); }
    Touch(const Touch&) = delete;
    Touch& operator=(const Touch&) = delete;

   private:
    void end();

    Presence& presence_;
    std::atomic<std::uint32_t>& word_;
  };

 private:
  void come(const Collective& collective);
  void wait_for_all(const Collective& collective);
  void compare(const Collective& collective) const;
  void wait_long(const std::function<int()>& missing);
  void sleep_for(const std::function<int()>& missing);
  [[noreturn]] void throw_aborted() const;

  Hub& hub_;
  int rank_;
  std::uint64_t fingerprint_ = 0;  // of the call it is in
};

}  // namespace atl::comm
