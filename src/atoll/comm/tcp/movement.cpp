#include "atoll/comm/tcp/movement.h"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/comm/reduce.h"

namespace atl::comm::tcp {

namespace {

// Pieces of one peer that may lie here unsummed.
constexpr std::size_t kRooms = 4;
// With so much in its queue a stream gets no further frame, so that one piece is sent at a time:
// then others come and are summed, and the next to go may be an echo that is in the cache. A call
// is less, and goes with the first piece behind it.
constexpr std::size_t kAhead = 1024;

/// The frame of a message from `done` on.
std::size_t piece_of(Kind kind, std::size_t bytes, std::size_t done) {
  const bool cut = kind == Kind::kPart || kind == Kind::kEcho;
  return cut ? std::min(Movement::kPiece, bytes - done) : bytes - done;
}

}  // namespace

Movement::Movement(std::vector<rendezvous::Socket> sockets, int self)
    : self_(self), peers_(sockets.size()) {
  for (std::size_t r = 0; r < sockets.size(); ++r)
    if (sockets[r])
      peers_[r].stream = std::make_unique<Stream>(std::move(sockets[r]), static_cast<int>(r));
  // received() points into it.
  receives_.reserve(4 * peers_.size());
  sent_.reserve(32);
}

void Movement::clear() {
  for (Peer& peer : peers_) {
    for (Queue* queue : {&peer.sends, &peer.sent_echoes, &peer.receives, &peer.echoes}) {
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

void Movement::send(Message message) {
  if (message.bytes == 0) return;
  Peer& peer = at(message.peer);
  const bool echo = message.kind == Kind::kEcho;
  (echo ? peer.sent_echoes : peer.sends).messages.push_back(sends_.size());
  sends_.push_back({message});
  left_ += message.bytes;
  if (!echo) sending_ += message.bytes;
}

void Movement::receive(Message message) {
  if (message.bytes == 0) return;
  Peer& peer = at(message.peer);
  (message.kind == Kind::kEcho ? peer.echoes : peer.receives).messages.push_back(receives_.size());
  receives_.push_back(message);
  left_ += message.bytes;
}

void Movement::reduce() {
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

void Movement::compare(std::span<const int> members, std::span<const CallHeader> headers) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == self_) continue;
    Peer& peer = at(members[i]);
    peer.mine = &headers[i];
    auto* mine = reinterpret_cast<std::byte*>(const_cast<CallHeader*>(&headers[i]));
    send({members[i], Kind::kCall, mine, sizeof(CallHeader)});
    receive(
        {members[i], Kind::kCall, reinterpret_cast<std::byte*>(&peer.theirs), sizeof(CallHeader)});
  }
}

bool Movement::expects(const Peer& peer) const {
  return !peer.receives.empty() || !peer.echoes.empty() || (peer.adds && peer.come < sum_.bytes);
}

Movement::Sending* Movement::next_to_send(Queue& queue) {
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

void Movement::queue_frames(Peer& peer) {
  while (peer.stream->queued_bytes() < kAhead) {
    // What is summed goes first, because it is in the cache; calls go before everything.
    Sending* sending = next_to_send(peer.sends);
    if (sending == nullptr || sending->message.kind != Kind::kCall) {
      Sending* echo = next_to_send(peer.sent_echoes);
      if (echo != nullptr) sending = echo;
    }
    if (sending == nullptr) return;
    const Message& message = sending->message;
    const std::size_t piece = piece_of(message.kind, message.bytes, sending->queued);
    peer.stream->push(message.kind, message.data + sending->queued, piece,
                      static_cast<std::size_t>(sending - sends_.data()));
    sending->queued += piece;
  }
}

bool Movement::send_to(Peer& peer) {
  if (!peer.stream) return false;  // no member of this channel
  queue_frames(peer);
  sent_.clear();
  if (!peer.stream->flush(sent_)) return false;
  for (const Stream::Sent& sent : sent_) {
    Message& message = sends_[sent.tag].message;
    message.done += sent.bytes;
    left_ -= sent.bytes;
    if (message.kind != Kind::kEcho) sending_ -= sent.bytes;
  }
  return true;
}

void Movement::refuse(Peer& peer, const Frame& frame, Kind kind, std::size_t total) {
  const int rank = peer.stream->peer();
  if (frame.kind == kGoodbye)
    throw GoneError(rank, fmt::format("rank {} has left, without an error", rank));
  if (frame.kind == Kind::kCall && frame.bytes == sizeof(CallHeader)) {
    peer.stray = true;
    return;
  }
  if (frame.kind == Kind::kBytes && kind == Kind::kBytes)
    throw PeerError(rank, fmt::format("rank {} sends {} bytes where rank {} expects {}", rank,
                                      frame.bytes, self_, total));
  throw PeerError(rank, fmt::format("rank {} sends {} bytes that do not belong to this call; does "
                                    "it call send or exchange?",
                                    rank, frame.bytes));
}

std::byte* Movement::place_for(Peer& peer, const Frame& frame) {
  const auto fits = [&](Kind kind, std::size_t bytes, std::size_t total) {
    if (frame.kind != kind || frame.bytes != bytes) refuse(peer, frame, kind, total);
    return !peer.stray;
  };
  std::byte* const stray = reinterpret_cast<std::byte*>(&peer.theirs);
  const bool echo = frame.kind == Kind::kEcho;
  const Queue& queue = echo ? peer.echoes : peer.receives;
  if (!queue.empty()) {
    const Message& message = receives_[queue.messages[queue.next]];
    const std::size_t piece = piece_of(message.kind, message.bytes, message.done);
    return fits(message.kind, piece, message.bytes) ? message.data + message.done : stray;
  }
  if (!echo && peer.adds && peer.come < sum_.bytes) {
    if (!fits(Kind::kPart, piece_of(Kind::kPart, sum_.bytes, peer.come), sum_.bytes)) return stray;
    const bool room = peer.come - sum_.done < kRooms * kPiece;
    return room ? peer.room + peer.come % (kRooms * kPiece) : nullptr;
  }
  refuse(peer, frame, Kind::kEcho, 0);
  return stray;
}

void Movement::finish_frame(Peer& peer, Frame frame) {
  const int rank = peer.stream->peer();
  peer.stream->release();
  if (peer.stray)
    throw PeerError(rank, fmt::format("rank {} calls {} instead; both must make the same calls in "
                                      "the same order",
                                      rank, peer.theirs.to_string()));
  if (peer.mine == nullptr || frame.kind == Kind::kCall) peer.arrived = true;
  Queue& queue = frame.kind == Kind::kEcho ? peer.echoes : peer.receives;
  if (queue.empty()) {
    peer.come += frame.bytes;
    return;
  }
  Message& message = receives_[queue.messages[queue.next]];
  message.done += frame.bytes;
  left_ -= frame.bytes;
  if (message.done == message.bytes) ++queue.next;
  if (frame.kind == Kind::kCall) compare_calls(*peer.mine, peer.theirs, rank);
}

bool Movement::receive_from(Peer& peer) {
  if (!peer.stream) return false;
  Stream& stream = *peer.stream;
  bool moved = false;
  // As much as one look brings, so that it is summed while it is in the cache.
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

bool Movement::reduce_piece() {
  if (sum_.done == sum_.bytes || (sum_.after_sends && sending_ > 0)) return false;
  const std::size_t piece = piece_of(Kind::kPart, sum_.bytes, sum_.done);
  sources_.clear();
  if (sum_.accumulate) sources_.push_back(sum_.result + sum_.done);
  for (const int contributor : sum_.contributors) {
    if (contributor == self_) {
      sources_.push_back(sum_.own + sum_.done);
      continue;
    }
    const Peer& peer = at(contributor);
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

bool Movement::step() {
  bool moved = false;
  // Each rank begins with its neighbour, so that not all send to rank 0 first.
  const auto size = static_cast<int>(peers_.size());
  for (int i = 1; i < size; ++i) moved |= send_to(at((self_ + i) % size));
  for (int i = 1; i < size; ++i) moved |= receive_from(at((self_ + size - i) % size));
  while (reduce_piece()) moved = true;
  if (moved) return true;
  for (const Peer& peer : peers_)
    if (peer.stream && !peer.stream->broken().empty())
      throw GoneError(peer.stream->peer(),
                      fmt::format("the connection to rank {} is broken: it is gone ({})",
                                  peer.stream->peer(), peer.stream->broken()));
  return false;
}

void Movement::wanted(std::vector<pollfd>& descriptors) const {
  descriptors.clear();
  for (const Peer& peer : peers_) {
    if (!peer.stream) continue;
    int events = peer.stream->queued() > 0 ? POLLOUT : 0;
    if (expects(peer) && !peer.waits) events |= POLLIN;
    if (events != 0) descriptors.push_back({peer.stream->fd(), static_cast<short>(events), 0});
  }
  ATOLL_CHECK(!descriptors.empty(), "{} bytes of rank {} wait for nobody", left_, self_);
}

std::vector<int> Movement::awaited() const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_)
    if (peer.stream && ((expects(peer) && !peer.waits) || peer.stream->queued() > 0))
      ranks.push_back(peer.stream->peer());
  std::stable_partition(ranks.begin(), ranks.end(), [&](int rank) { return !at(rank).arrived; });
  return ranks;
}

void Movement::say_goodbye() noexcept {
  for (Peer& peer : peers_) {
    if (!peer.stream || peer.stream->queued() > 0) continue;
    sent_.clear();
    peer.stream->push(kGoodbye, nullptr, 0, 0);
    peer.stream->flush(sent_);  // whoever does not take it will see that the connection closes
  }
}

void Movement::shut_down() noexcept {
  for (const Peer& peer : peers_)
    if (peer.stream) ::shutdown(peer.stream->fd(), SHUT_RDWR);
}

}  // namespace atl::comm::tcp
