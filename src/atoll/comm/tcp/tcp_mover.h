#pragma once

// Bytes on their way through sockets: many messages at the same time, each cut into frames.

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "atoll/comm/collectives/call_header.h"
#include "atoll/comm/shared/plan.h"
#include "atoll/comm/tcp/frame_stream.h"

namespace atl::comm::tcp {

using shared::Message;
using shared::Reduction;

/// Moves the bytes of one call after the other: sends, receives and a reduction take turns piece by
/// piece, so that what has come is summed, and what is summed goes on, while it is in the cache.
/// Peers are ranks of the world.
class TcpMover : public shared::MessageMover {
 public:
  /// Parts and results are cut into frames of so many bytes; both sides cut alike.
  static constexpr std::size_t kPiece = std::size_t{128} << 10;

  /// `sockets[r]` leads to rank r; that of `self` is empty.
  TcpMover(std::vector<rendezvous::Socket> sockets, int self);

  /// Forgets the last call.
  void clear();
  void send(Message message) override;
  void receive(Message message) override;
  Reduction& reduction() override { return sum_; }
  void reduce() override;
  const std::size_t* reduced() const override { return &sum_.done; }
  const std::size_t* received() const override { return &receives_.back().done; }
  /// Calls are compared before anything else of a peer is taken: each of `members` must send a
  /// header that equals this rank's, of which there is one for each of them.
  void compare(std::span<const int> members, std::span<const CallHeader> headers);

  bool done() const { return left_ == 0; }
  /// Moves what can be moved now; false when nothing could. Throws PeerClosedError when a peer that
  /// is awaited has closed, PeerError when it sends something else than this call has.
  bool step();
  /// What to poll for until step() can do more.
  void wanted(std::vector<pollfd>& descriptors) const;
  /// Those without whom it does not go on; those whose call has not come before the others.
  std::vector<int> awaited() const;

  /// Tells all peers that this rank ends in order.
  void say_goodbye() noexcept;
  /// Ends all connections; for any thread.
  void shut_down() noexcept;

 private:
  struct Sending {
    Message message;
    std::size_t queued = 0;
  };
  // Messages by their places in sends_ and receives_, in order; `next` is the first unfinished.
  struct Queue {
    std::vector<std::size_t> messages;
    std::size_t next = 0;
    bool empty() const { return next == messages.size(); }
  };
  struct PeerState {
    std::unique_ptr<FrameStream> stream;
    Queue sends, sent_results, receives, results;
    bool adds = false;          // to the reduction
    std::size_t come = 0;       // bytes of that which have come
    std::byte* room = nullptr;  // where the pieces that are not summed yet lie
    bool arrived = false;       // its call was compared, or anything came
    bool stray = false;         // it calls something else: its header comes
    bool waits = false;         // its next frame has no place yet
    const CallHeader* mine = nullptr;
    CallHeader theirs;
  };

  PeerState& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  const PeerState& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  bool expects(const PeerState& peer) const;
  Sending* next_to_send(Queue& queue);
  void queue_frames(PeerState& peer);
  bool send_to(PeerState& peer);
  bool receive_from(PeerState& peer);
  std::byte* place_for(PeerState& peer, const Frame& frame);
  void refuse(PeerState& peer, const Frame& frame, MessageKind kind, std::size_t total);
  void finish_frame(PeerState& peer, Frame frame);
  bool reduce_piece();

  int self_;
  std::vector<PeerState> peers_;
  std::vector<Sending> sends_;
  std::vector<Message> receives_;
  Reduction sum_;
  std::unique_ptr<std::byte[]> rooms_;
  std::size_t rooms_bytes_ = 0;
  std::vector<const void*> sources_;
  std::vector<FrameStream::Sent> sent_;
  std::size_t left_ = 0;     // bytes
  std::size_t sending_ = 0;  // of them those that go and are no results
};

}  // namespace atl::comm::tcp
