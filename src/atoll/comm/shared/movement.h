#pragma once

// Bytes on their way through lanes: many messages at the same time, each cut into pieces.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/comm/call_header.h"
#include "atoll/comm/collective.h"
#include "atoll/comm/shared/peers.h"
#include "atoll/comm/shared/segment.h"

namespace atl::comm::shared {

/// A message to, or from, a rank of this host.
struct Message {
  int peer = 0;  ///< its place on this host
  Kind kind = Kind::kBytes;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  /// A message that becomes known only little by little, such as sums: how much is there. Null:
  /// all.
  const std::size_t* ready = nullptr;
  std::size_t done = 0;
};

/// The sum (or extreme) of what comes with Kind::kPart and what this rank has.
struct Reduction {
  Dtype dtype = Dtype::kF32;
  Reduce how = Reduce::kSum;
  bool accumulate = false;        ///< the result comes first in the chain
  std::vector<int> contributors;  ///< places on this host, in rank order; empty: no reduction
  const std::byte* own = nullptr;
  std::byte* result = nullptr;
  std::size_t bytes = 0;
  /// The result overwrites what this rank sends: it waits until all sends but echoes are done.
  bool after_sends = false;
  std::size_t done = 0;
};

/// One movement of bytes: sends, receives and a reduction that take turns piece by piece, so that
/// what one rank has copied in is read by another while it is in the cache.
class Movement {
 public:
  Movement(Segment& segment, Peers& peers);

  /// Between a pair, messages of one kind move in the order in which they are added; echoes move
  /// beside the others. Empty ones do not move at all.
  void send(Message message);
  void receive(Message message);
  void reduce(Reduction reduction);
  /// Calls are compared first: each of `members` must send a header that equals `mine` but for what
  /// differs between pairs. `headers`: one for each of them.
  void compare(std::span<const int> members, std::span<const CallHeader> headers);

  /// How much of the reduction is done, for Message::ready.
  const std::size_t* reduced() const { return &sum_.done; }
  /// How much of the last message that receive() took has come.
  const std::size_t* received() const { return &receives_.back().done; }
  /// Keeps the two above valid while messages are added.
  void reserve(std::size_t messages);

  bool done() const { return left_ == 0; }
  /// Moves what can be moved now; false when nothing could.
  bool step();
  /// Those without whom it does not go on.
  std::vector<int> awaited() const;
  /// By place on this host: whether that rank's call has been compared, or anything came from it.
  const std::vector<char>& arrived() const { return arrived_; }

 private:
  bool push(Message& message);
  bool pull(Message& message);
  bool reduce_piece();
  bool waits_for_header(int peer) const;
  Slot* front(int peer) const;
  void pop(int peer);
  void accept(int peer, const Slot& slot, Kind kind, std::size_t bytes, std::size_t total);

  Segment& segment_;
  Peers& peers_;
  int self_;
  std::vector<Message> sends_, receives_;
  Reduction sum_;
  std::vector<CallHeader> theirs_;  // by place on this host
  std::vector<const CallHeader*> mine_;
  std::vector<char> arrived_;
  std::vector<char> blocked_;
  std::vector<const void*> sources_;
  std::size_t left_ = 0;  // bytes
};

}  // namespace atl::comm::shared
