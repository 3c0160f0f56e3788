#pragma once

// Moves messages through the queues of a segment: many at the same time, each cut into pieces.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/comm/collective.h"
#include "atoll/comm/collectives/call_header.h"
#include "atoll/comm/shared/local_ranks.h"
#include "atoll/comm/shared/plan.h"
#include "atoll/comm/shared/segment.h"

namespace atl::comm::shared {

/// Moves the bytes of one call after the other: sends, receives and a reduction take turns piece by
/// piece, so that what one rank has copied in is read by another while it is in the cache.
class WindowMover : public MessageMover {
 public:
  WindowMover(Segment& segment, LocalRanks& local_ranks);

  /// Forgets the last call.
  void clear();
  void send(Message message) override;
  void receive(Message message) override;
  Reduction& reduction() override { return sum_; }
  void reduce() override;
  /// Calls are compared first: each of `members` must send a header that equals `mine` but for what
  /// differs between pairs. `headers`: one for each of them.
  void compare(std::span<const int> members, std::span<const CallHeader> headers);

  const std::size_t* reduced() const override { return &sum_.done; }
  const std::size_t* received() const override { return &receives_.back().done; }
  /// Keeps the two above valid while messages are added.
  void reserve(std::size_t messages);

  bool done() const { return left_ == 0; }
  /// Moves what can be moved now; false when nothing could. Who is awake sees it.
  bool step();
  /// Wakes those for whom step() has moved something. Once for many pieces: to be woken costs a
  /// rank that computes beside its collectives more than to copy a piece.
  void tell();
  /// Those without whom it does not go on.
  const std::vector<int>& awaited();
  /// By place on this host: whether that rank's call has been compared, or anything came from it.
  const std::vector<char>& arrived() const { return arrived_; }

 private:
  bool push(Message& message);
  bool pull(Message& message);
  bool reduce_piece();
  bool waits_for_header(int peer) const;
  Slot* front(int peer) const;
  void pop(int peer);
  void accept(int peer, const Slot& slot, MessageKind kind, std::size_t bytes, std::size_t total);

  Segment& segment_;
  LocalRanks& local_ranks_;
  int self_;
  std::vector<Message> sends_, receives_;
  Reduction sum_;
  std::vector<CallHeader> theirs_;  // by place on this host
  std::vector<const CallHeader*> mine_;
  std::vector<char> arrived_;
  std::vector<char> blocked_;
  std::vector<char> untold_;  // by place: its queues have changed since the last tell()
  std::vector<const void*> sources_;
  std::vector<int> awaited_;
  std::size_t left_ = 0;  // bytes
};

}  // namespace atl::comm::shared
