#pragma once

// The connection with one peer: frames of bytes in both directions, straight from and into the
// memory of whoever sends and receives, without ever waiting.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous_wire.h"
#include "atoll/comm/shared/segment.h"
#include "atoll/comm/world.h"

namespace atl::comm::tcp {

using shared::MessageKind;
/// The last frame of a rank that ends without an error.
inline constexpr MessageKind kGoodbye = MessageKind{5};

/// What stands before a frame's bytes.
struct Frame {
  std::uint32_t magic = 0;
  MessageKind kind = MessageKind::kBytes;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Frame) == 16);

/// The peer has closed its connection. The cause may be noted at the rendezvous.
class PeerClosedError : public PeerError {
 public:
  using PeerError::PeerError;
};

/// Frames to and from one peer. The peer is not trusted: each frame's header is checked before its
/// bytes are read, and the receiver says where they go.
class FrameStream {
 public:
  FrameStream(rendezvous::Socket socket, int peer);

  int fd() const { return socket_.fd(); }
  int peer() const { return peer_; }

  /// A frame that has been handed to the system whole; `tag` as given to push().
  struct Sent {
    std::size_t tag = 0;
    std::size_t bytes = 0;
  };
  /// Queues a frame; the bytes must stay as they are until flush() says that it was sent.
  void push(MessageKind kind, const std::byte* data, std::size_t bytes, std::size_t tag);
  /// Frames that are not yet sent whole.
  std::size_t queued() const { return queue_.size() - first_; }
  /// Bytes of those frames.
  std::size_t queued_bytes() const { return queued_bytes_; }
  /// Hands over what the system takes now and adds to `sent`; whether it took anything.
  bool flush(std::vector<Sent>& sent);
  /// Why nothing can be sent any more; empty: it can. What the peer had sent before may be read.
  const std::string& broken() const { return broken_; }

  /// The frame that comes now and has not been released, null where none is known. Throws PeerError
  /// when it is no frame of ours.
  const Frame* frame();
  /// Whether its bytes have a place.
  bool placed() const { return to_ != nullptr; }
  /// Says where the frame's bytes go; there must be room for all of them.
  void place(std::byte* to) { place(to, frame_.bytes); }
  /// The same for the next `bytes` of it alone, where not all of what a peer claims is to be had at
  /// once; when whole() says that they are there, the rest is placed.
  void place(std::byte* to, std::size_t bytes);
  /// Whether all bytes that were placed are there.
  bool whole() const { return to_ != nullptr && left_ == 0; }
  /// The next frame may be shown.
  void release();
  /// Takes what has come; false: nothing. Throws PeerClosedError when the peer has closed.
  bool read();

 private:
  static constexpr std::size_t kStage = std::size_t{16} << 10;
  // Read beyond the bytes that have a place: the next frame's head, and the call behind it.
  static constexpr std::size_t kBeyond = 512;
  static constexpr std::size_t kMostFrames = 8;  // of one call of the system

  struct Outbound {
    Frame head;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t tag = 0;
  };
  void advance(std::size_t bytes, std::vector<Sent>& sent);
  void take_staged();

  rendezvous::Socket socket_;
  int peer_;
  std::vector<Outbound> queue_;  // from first_
  std::size_t first_ = 0;
  std::size_t queued_bytes_ = 0;
  std::size_t sent_ = 0;  // bytes of the first one, head included
  std::string broken_;

  Frame frame_;
  bool known_ = false;       // frame_ is the one that comes now
  std::byte* to_ = nullptr;  // where its next byte goes
  std::size_t left_ = 0;
  std::array<std::byte, kStage> stage_;
  std::size_t stage_begin_ = 0, stage_end_ = 0;
};

}  // namespace atl::comm::tcp
