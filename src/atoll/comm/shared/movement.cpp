#include "atoll/comm/shared/movement.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/comm/reduce.h"
#include "atoll/comm/world.h"

namespace atl::comm::shared {

namespace {

std::size_t at(int place) {
  return static_cast<std::size_t>(place);
}

}  // namespace

Movement::Movement(Segment& segment, Peers& peers)
    : segment_(segment),
      peers_(peers),
      self_(peers.self()),
      theirs_(at(peers.size())),
      mine_(at(peers.size()), nullptr),
      arrived_(at(peers.size()), 0),
      blocked_(at(peers.size()), 0),
      untold_(at(peers.size()), 0) {
  awaited_.reserve(at(peers.size()));
}

void Movement::clear() {
  sends_.clear();
  receives_.clear();
  sum_.clear();
  std::fill(mine_.begin(), mine_.end(), nullptr);
  std::fill(arrived_.begin(), arrived_.end(), 0);
  std::fill(untold_.begin(), untold_.end(), 0);
  left_ = 0;
}

void Movement::reserve(std::size_t messages) {
  sends_.reserve(messages);
  receives_.reserve(messages);
}

void Movement::send(Message message) {
  if (message.bytes == 0) return;
  left_ += message.bytes;
  sends_.push_back(message);
}

void Movement::receive(Message message) {
  if (message.bytes == 0) return;
  left_ += message.bytes;
  receives_.push_back(message);
}

void Movement::reduce() {
  left_ += sum_.bytes;
}

void Movement::compare(std::span<const int> members, std::span<const CallHeader> headers) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int peer = members[i];
    if (peer == self_) continue;
    mine_[at(peer)] = &headers[i];
    auto* mine = reinterpret_cast<std::byte*>(const_cast<CallHeader*>(&headers[i]));
    send({peer, Kind::kCall, mine, sizeof(CallHeader)});
    receive(
        {peer, Kind::kCall, reinterpret_cast<std::byte*>(&theirs_[at(peer)]), sizeof(CallHeader)});
  }
}

Slot* Movement::front(int peer) const {
  const Lane& lane = segment_.lane(peer, self_);
  const std::uint64_t tail = lane.tail.load(std::memory_order_relaxed);
  if (lane.head.load(std::memory_order_acquire) == tail) return nullptr;
  return &segment_.slot(peer, self_, tail);
}

void Movement::pop(int peer) {
  std::atomic<std::uint64_t>& tail = segment_.lane(peer, self_).tail;
  tail.store(tail.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  untold_[at(peer)] = 1;
}

bool Movement::push(Message& message) {
  Lane& lane = segment_.lane(self_, message.peer);
  const std::uint64_t head = lane.head.load(std::memory_order_relaxed);
  const std::size_t piece = std::min(segment_.piece_bytes(), message.bytes - message.done);
  if (message.ready != nullptr && *message.ready < message.done + piece) return false;
  if (head - lane.tail.load(std::memory_order_acquire) >= Segment::kSlots) return false;
  Slot& slot = segment_.slot(self_, message.peer, head);
  slot.kind = message.kind;
  slot.bytes = piece;
  slot.total = message.bytes;
  std::memcpy(slot.data(), message.data + message.done, piece);
  lane.head.store(head + 1, std::memory_order_release);
  untold_[at(message.peer)] = 1;
  message.done += piece;
  left_ -= piece;
  return true;
}

void Movement::accept(int peer, const Slot& slot, Kind kind, std::size_t bytes, std::size_t total) {
  if (slot.kind == kind && slot.bytes == bytes && slot.total == total) return;
  const int rank = peers_.rank(peer);
  if (slot.kind == Kind::kCall) {
    CallHeader theirs;
    std::memcpy(&theirs, const_cast<Slot&>(slot).data(), sizeof(theirs));
    throw PeerError(rank, fmt::format("{} calls {} instead; both must make the same calls in the "
                                      "same order",
                                      peers_.name(peer), theirs.to_string()));
  }
  if (slot.kind == Kind::kBytes && kind == Kind::kBytes)
    throw PeerError(rank, fmt::format("{} sends {} bytes where rank {} expects {}",
                                      peers_.name(peer), slot.total, peers_.rank(self_), total));
  throw PeerError(rank, fmt::format("{} sends {} bytes that do not belong to this call; does it "
                                    "call send or exchange?",
                                    peers_.name(peer), slot.total));
}

bool Movement::pull(Message& message) {
  Slot* slot = front(message.peer);
  if (slot == nullptr) return false;
  // Echoes and the rest share a lane; each message takes what is its own.
  if ((slot->kind == Kind::kEcho) != (message.kind == Kind::kEcho)) return false;
  const std::size_t piece = std::min(segment_.piece_bytes(), message.bytes - message.done);
  accept(message.peer, *slot, message.kind, piece, message.bytes);
  std::memcpy(message.data + message.done, slot->data(), piece);
  pop(message.peer);
  message.done += piece;
  left_ -= piece;
  if (message.kind == Kind::kCall && message.done == message.bytes)
    compare_calls(*mine_[at(message.peer)], theirs_[at(message.peer)], peers_.rank(message.peer));
  arrived_[at(message.peer)] = 1;
  return true;
}

bool Movement::reduce_piece() {
  if (sum_.done == sum_.bytes) return false;
  const std::size_t piece = std::min(segment_.piece_bytes(), sum_.bytes - sum_.done);
  sources_.clear();
  if (sum_.accumulate) sources_.push_back(sum_.result + sum_.done);
  for (const int peer : sum_.contributors) {
    if (peer == self_) {
      sources_.push_back(sum_.own + sum_.done);
      continue;
    }
    Slot* slot = front(peer);
    if (slot == nullptr || slot->kind == Kind::kEcho || !arrived_[at(peer)]) return false;
    accept(peer, *slot, Kind::kPart, piece, sum_.bytes);
    sources_.push_back(slot->data());
  }
  void* result = sum_.result + sum_.done;
  reduce_in_order(sum_.dtype, sum_.how, sources_, {&result, 1},
                  static_cast<std::int64_t>(piece / dtype_size(sum_.dtype)));
  for (const int peer : sum_.contributors)
    if (peer != self_) pop(peer);
  sum_.done += piece;
  left_ -= piece;
  return true;
}

bool Movement::step() {
  bool moved = false, sending = false;
  std::fill(blocked_.begin(), blocked_.end(), 0);
  for (Message& message : sends_) {
    if (message.done == message.bytes) continue;
    const bool echo = message.kind == Kind::kEcho;
    if (!echo) {
      sending = true;
      if (std::exchange(blocked_[at(message.peer)], 1)) continue;
    }
    moved |= push(message);
  }
  std::fill(blocked_.begin(), blocked_.end(), 0);
  for (Message& message : receives_) {
    if (message.done == message.bytes) continue;
    if (message.kind != Kind::kEcho && std::exchange(blocked_[at(message.peer)], 1)) continue;
    moved |= pull(message);
  }
  if (!(sum_.after_sends && sending)) moved |= reduce_piece();
  return moved;
}

void Movement::tell() {
  for (int peer = 0; peer < peers_.size(); ++peer) {
    if (std::exchange(untold_[at(peer)], 0)) peers_.ring(peer);
  }
}

const std::vector<int>& Movement::awaited() {
  std::vector<int>& peers = awaited_;
  peers.clear();
  const auto add = [&](int peer) {
    if (peer != self_ && std::find(peers.begin(), peers.end(), peer) == peers.end())
      peers.push_back(peer);
  };
  for (const Message& message : receives_)
    if (message.done < message.bytes && front(message.peer) == nullptr) add(message.peer);
  if (sum_.done < sum_.bytes)
    for (const int peer : sum_.contributors)
      if (peer != self_ && front(peer) == nullptr) add(peer);
  for (const Message& message : sends_)
    if (message.done < message.bytes && (message.ready == nullptr || *message.ready > message.done))
      add(message.peer);
  return peers;
}

}  // namespace atl::comm::shared
