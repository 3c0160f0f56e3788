#include "atoll/comm/tcp/tcp_mover.h"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/comm/collectives/reduce.h"

namespace atl::comm::tcp {

namespace {

// Pieces of one peer that may wait here to be summed.
constexpr std::size_t kRooms = 4;
// A stream with so many bytes in its queue gets no further frame, so that one piece is sent at a
// time: meanwhile other pieces arrive and are summed, and the next frame can be a result that is
// still in the cache. A call header is shorter and goes out with the piece behind it.
constexpr std::size_t kAhead = 1024;

/// The frame of a message from `done` on.
std::size_t piece_of(MessageKind kind, std::size_t bytes, std::size_t done) {
  const bool cut = kind == MessageKind::kContribution || kind == MessageKind::kResult;
  return cut ? std::min(TcpMover::kPiece, bytes - done) : bytes - done;
}

}  // namespace

TcpMover::TcpMover(std::vector<rendezvous::Socket> sockets, int self)
    : self_(self), peers_(sockets.size()) {
  for (std::size_t r = 0; r < sockets.size(); ++r)
    if (sockets[r])
      peers_[r].stream = std::make_unique<FrameStream>(std::move(sockets[r]), static_cast<int>(r));
  // received() points into it.
  receives_.reserve(4 * peers_.size());
  sent_.reserve(32);
}

void TcpMover::clear() {
  for (PeerState& peer : peers_) {
    for (Queue* queue : {&peer.sends, &peer.sent_results, &peer.receives, &peer.results}) {
      queue->messages.clear();
      queue->next = 0;
    }
    peer.adds = peer.arrived = peer.stray = peer.waits = false;
    peer.come = 0;
    peer.mine = nullptr;
  }
  sends_.clear();
  receives_.clear();
  sum_.clear();
  left_ = sending_ = 0;
}

void TcpMover::send(Message message) {
  if (message.bytes == 0) return;
  PeerState& peer = at(message.peer);
  const bool is_result = message.kind == MessageKind::kResult;
  (is_result ? peer.sent_results : peer.sends).messages.push_back(sends_.size());
  sends_.push_back({message});
  left_ += message.bytes;
  if (!is_result) sending_ += message.bytes;
}

void TcpMover::receive(Message message) {
  if (message.bytes == 0) return;
  PeerState& peer = at(message.peer);
  (message.kind == MessageKind::kResult ? peer.results : peer.receives)
      .messages.push_back(receives_.size());
  receives_.push_back(message);
  left_ += message.bytes;
}

void TcpMover::reduce() {
  left_ += sum_.bytes;
  const std::size_t each = std::min(kRooms * kPiece, (sum_.bytes + 63) / 64 * 64);
  const std::size_t bytes = each * sum_.contributors.size();
  if (bytes > rooms_bytes_) rooms_.reset(new std::byte[rooms_bytes_ = bytes]);
  std::byte* room = rooms_.get();
  for (const int contributor : sum_.contributors) {
    if (contributor == self_) continue;
    at(contributor).adds = true;
    at(contributor).room = std::exchange(room, room + each);
  }
}

void TcpMover::compare(std::span<const int> members, std::span<const CallHeader> headers) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == self_) continue;
    PeerState& peer = at(members[i]);
    peer.mine = &headers[i];
    auto* mine = reinterpret_cast<std::byte*>(const_cast<CallHeader*>(&headers[i]));
    send({members[i], MessageKind::kCall, mine, sizeof(CallHeader)});
    receive({members[i], MessageKind::kCall, reinterpret_cast<std::byte*>(&peer.theirs),
             sizeof(CallHeader)});
  }
}

bool TcpMover::expects(const PeerState& peer) const {
  return !peer.receives.empty() || !peer.results.empty() || (peer.adds && peer.come < sum_.bytes);
}

TcpMover::Sending* TcpMover::next_to_send(Queue& queue) {
  while (!queue.empty()) {
    Sending& sending = sends_[queue.messages[queue.next]];
    if (sending.queued == sending.message.bytes) {
      ++queue.next;
      continue;
    }
    const Message& message = sending.message;
    const std::size_t piece = piece_of(message.kind, message.bytes, sending.queued);
    const bool ready = message.ready == nullptr || *message.ready >= sending.queued + piece;
    return ready ? &sending : nullptr;
  }
  return nullptr;
}

void TcpMover::queue_frames(PeerState& peer) {
  while (peer.stream->queued_bytes() < kAhead) {
    // Call headers go first; then results, because they are in the cache.
    Sending* sending = next_to_send(peer.sends);
    if (sending == nullptr || sending->message.kind != MessageKind::kCall) {
      Sending* result = next_to_send(peer.sent_results);
      if (result != nullptr) sending = result;
    }
    if (sending == nullptr) return;
    const Message& message = sending->message;
    const std::size_t piece = piece_of(message.kind, message.bytes, sending->queued);
    peer.stream->push(message.kind, message.data + sending->queued, piece,
                      static_cast<std::size_t>(sending - sends_.data()));
    sending->queued += piece;
  }
}

bool TcpMover::send_to(PeerState& peer) {
  if (!peer.stream) return false;  // no member of this channel
  queue_frames(peer);
  sent_.clear();
  if (!peer.stream->flush(sent_)) return false;
  for (const FrameStream::Sent& sent : sent_) {
    Message& message = sends_[sent.tag].message;
    message.done += sent.bytes;
    left_ -= sent.bytes;
    if (message.kind != MessageKind::kResult) sending_ -= sent.bytes;
  }
  return true;
}

void TcpMover::refuse(PeerState& peer, const Frame& frame, MessageKind kind, std::size_t total) {
  const int rank = peer.stream->peer();
  if (frame.kind == kGoodbye)
    throw PeerClosedError(rank, fmt::format("rank {} has left, without an error", rank));
  if (frame.kind == MessageKind::kCall && frame.bytes == sizeof(CallHeader)) {
    peer.stray = true;
    return;
  }
  if (frame.kind == MessageKind::kBytes && kind == MessageKind::kBytes)
    throw PeerError(rank, fmt::format("rank {} sends {} bytes where rank {} expects {}", rank,
                                      frame.bytes, self_, total));
  throw PeerError(rank, fmt::format("rank {} sends {} bytes that do not belong to this call; does "
                                    "it call send or exchange?",
                                    rank, frame.bytes));
}

std::byte* TcpMover::place_for(PeerState& peer, const Frame& frame) {
  const auto fits = [&](MessageKind kind, std::size_t bytes, std::size_t total) {
    if (frame.kind != kind || frame.bytes != bytes) refuse(peer, frame, kind, total);
    return !peer.stray;
  };
  std::byte* const stray = reinterpret_cast<std::byte*>(&peer.theirs);
  const bool is_result = frame.kind == MessageKind::kResult;
  const Queue& queue = is_result ? peer.results : peer.receives;
  if (!queue.empty()) {
    const Message& message = receives_[queue.messages[queue.next]];
    const std::size_t piece = piece_of(message.kind, message.bytes, message.done);
    return fits(message.kind, piece, message.bytes) ? message.data + message.done : stray;
  }
  if (!is_result && peer.adds && peer.come < sum_.bytes) {
    if (!fits(MessageKind::kContribution,
              piece_of(MessageKind::kContribution, sum_.bytes, peer.come), sum_.bytes))
      return stray;
    const bool room = peer.come - sum_.done < kRooms * kPiece;
    return room ? peer.room + peer.come % (kRooms * kPiece) : nullptr;
  }
  refuse(peer, frame, MessageKind::kResult, 0);
  return stray;
}

void TcpMover::finish_frame(PeerState& peer, Frame frame) {
  const int rank = peer.stream->peer();
  peer.stream->release();
  if (peer.stray)
    throw PeerError(rank, fmt::format("rank {} calls {} instead; both must make the same calls in "
                                      "the same order",
                                      rank, peer.theirs.to_string()));
  if (peer.mine == nullptr || frame.kind == MessageKind::kCall) peer.arrived = true;
  Queue& queue = frame.kind == MessageKind::kResult ? peer.results : peer.receives;
  if (queue.empty()) {
    peer.come += frame.bytes;
    return;
  }
  Message& message = receives_[queue.messages[queue.next]];
  message.done += frame.bytes;
  left_ -= frame.bytes;
  if (message.done == message.bytes) ++queue.next;
  if (frame.kind == MessageKind::kCall) compare_calls(*peer.mine, peer.theirs, rank);
}

bool TcpMover::receive_from(PeerState& peer) {
  if (!peer.stream) return false;
  FrameStream& stream = *peer.stream;
  bool moved = false;
  // Only what one read brings, so that it is summed while it is in the cache.
  for (bool looked = false; expects(peer);) {
    const Frame* frame = stream.frame();
    if (frame != nullptr && !stream.placed()) {
      std::byte* place = place_for(peer, *frame);
      peer.waits = place == nullptr;
      if (peer.waits) return moved;
      stream.place(place);
    }
    if (stream.whole()) {
      finish_frame(peer, *frame);
      moved = true;
      continue;
    }
    if (looked || !stream.read()) return moved;
    looked = moved = true;
  }
  return moved;
}

bool TcpMover::reduce_piece() {
  if (sum_.done == sum_.bytes || (sum_.after_sends && sending_ > 0)) return false;
  const std::size_t piece = piece_of(MessageKind::kContribution, sum_.bytes, sum_.done);
  sources_.clear();
  if (sum_.accumulate) sources_.push_back(sum_.result + sum_.done);
  for (const int contributor : sum_.contributors) {
    if (contributor == self_) {
      sources_.push_back(sum_.own + sum_.done);
      continue;
    }
    const PeerState& peer = at(contributor);
    if (peer.come < sum_.done + piece) return false;
    sources_.push_back(peer.room + sum_.done % (kRooms * kPiece));
  }
  void* result = sum_.result + sum_.done;
  reduce_in_order(sum_.dtype, sum_.how, sources_, {&result, 1},
                  static_cast<std::int64_t>(piece / dtype_size(sum_.dtype)));
  sum_.done += piece;
  left_ -= piece;
  return true;
}

bool TcpMover::step() {
  bool moved = false;
  // Each rank begins with its neighbour, so that not all send to rank 0 first.
  const auto size = static_cast<int>(peers_.size());
  for (int i = 1; i < size; ++i) moved |= send_to(at((self_ + i) % size));
  for (int i = 1; i < size; ++i) moved |= receive_from(at((self_ + size - i) % size));
  while (reduce_piece()) moved = true;
  if (moved) return true;
  for (const PeerState& peer : peers_)
    if (peer.stream && !peer.stream->broken().empty())
      throw PeerClosedError(peer.stream->peer(),
                            fmt::format("the connection to rank {} is broken: it is gone ({})",
                                        peer.stream->peer(), peer.stream->broken()));
  return false;
}

void TcpMover::wanted(std::vector<pollfd>& descriptors) const {
  descriptors.clear();
  for (const PeerState& peer : peers_) {
    if (!peer.stream) continue;
    int events = peer.stream->queued() > 0 ? POLLOUT : 0;
    if (expects(peer) && !peer.waits) events |= POLLIN;
    if (events != 0) descriptors.push_back({peer.stream->fd(), static_cast<short>(events), 0});
  }
  ATOLL_CHECK(!descriptors.empty(), "{} bytes of rank {} wait for nobody", left_, self_);
}

std::vector<int> TcpMover::awaited() const {
  std::vector<int> ranks;
  for (const PeerState& peer : peers_)
    if (peer.stream && ((expects(peer) && !peer.waits) || peer.stream->queued() > 0))
      ranks.push_back(peer.stream->peer());
  std::stable_partition(ranks.begin(), ranks.end(), [&](int rank) { return !at(rank).arrived; });
  return ranks;
}

void TcpMover::say_goodbye() noexcept {
  for (PeerState& peer : peers_) {
    if (!peer.stream || peer.stream->queued() > 0) continue;
    sent_.clear();
    peer.stream->push(kGoodbye, nullptr, 0, 0);
    peer.stream->flush(sent_);  // a peer that does not read it sees that the connection closes
  }
}

void TcpMover::shut_down() noexcept {
  for (const PeerState& peer : peers_)
    if (peer.stream) ::shutdown(peer.stream->fd(), SHUT_RDWR);
}

}  // namespace atl::comm::tcp
