#include "atoll/comm/shared/window_mover.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/comm/collectives/reduce.h"
#include "atoll/comm/world.h"

namespace atl::comm::shared {

namespace {

std::size_t at(int place) {
  return static_cast<std::size_t>(place);
}

}  // namespace

WindowMover::WindowMover(Segment& segment, LocalRanks& local_ranks)
    : segment_(segment),
      local_ranks_(local_ranks),
      self_(local_ranks.self()),
      theirs_(at(local_ranks.size())),
      mine_(at(local_ranks.size()), nullptr),
      arrived_(at(local_ranks.size()), 0),
      blocked_(at(local_ranks.size()), 0),
      untold_(at(local_ranks.size()), 0) {
  awaited_.reserve(at(local_ranks.size()));
}

void WindowMover::clear() {
  sends_.clear();
  receives_.clear();
  sum_.clear();
  std::fill(mine_.begin(), mine_.end(), nullptr);
  std::fill(arrived_.begin(), arrived_.end(), 0);
  std::fill(untold_.begin(), untold_.end(), 0);
  left_ = 0;
}

void WindowMover::reserve(std::size_t messages) {
  sends_.reserve(messages);
  receives_.reserve(messages);
}

void WindowMover::send(Message message) {
  if (message.bytes == 0) return;
  left_ += message.bytes;
  sends_.push_back(message);
}

void WindowMover::receive(Message message) {
  if (message.bytes == 0) return;
  left_ += message.bytes;
  receives_.push_back(message);
}

void WindowMover::reduce() {
  left_ += sum_.bytes;
}

void WindowMover::compare(std::span<const int> members, std::span<const CallHeader> headers) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int peer = members[i];
    if (peer == self_) continue;
    mine_[at(peer)] = &headers[i];
    auto* mine = reinterpret_cast<std::byte*>(const_cast<CallHeader*>(&headers[i]));
    send({peer, MessageKind::kCall, mine, sizeof(CallHeader)});
    receive({peer, MessageKind::kCall, reinterpret_cast<std::byte*>(&theirs_[at(peer)]),
             sizeof(CallHeader)});
  }
}

Slot* WindowMover::front(int peer) const {
  const SpscQueue& queue = segment_.queue(peer, self_);
  const std::uint64_t tail = queue.tail.load(std::memory_order_relaxed);
  if (queue.head.load(std::memory_order_acquire) == tail) return nullptr;
  return &segment_.slot(peer, self_, tail);
}

void WindowMover::pop(int peer) {
  std::atomic<std::uint64_t>& tail = segment_.queue(peer, self_).tail;
  tail.store(tail.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  untold_[at(peer)] = 1;
}

bool WindowMover::push(Message& message) {
  SpscQueue& queue = segment_.queue(self_, message.peer);
  const std::uint64_t head = queue.head.load(std::memory_order_relaxed);
  const std::size_t piece = std::min(segment_.piece_bytes(), message.bytes - message.done);
  if (message.ready != nullptr && *message.ready < message.done + piece) return false;
  if (head - queue.tail.load(std::memory_order_acquire) >= Segment::kSlots) return false;
  Slot& slot = segment_.slot(self_, message.peer, head);
  slot.kind = message.kind;
  slot.bytes = piece;
  slot.total = message.bytes;
  std::memcpy(slot.data(), message.data + message.done, piece);
  queue.head.store(head + 1, std::memory_order_release);
  untold_[at(message.peer)] = 1;
  message.done += piece;
  left_ -= piece;
  return true;
}

void WindowMover::accept(int peer, const Slot& slot, MessageKind kind, std::size_t bytes,
                         std::size_t total) {
  if (slot.kind == kind && slot.bytes == bytes && slot.total == total) return;
  const int rank = local_ranks_.rank(peer);
  if (slot.kind == MessageKind::kCall) {
    CallHeader theirs;
    std::memcpy(&theirs, const_cast<Slot&>(slot).data(), sizeof(theirs));
    throw PeerError(rank, fmt::format("{} calls {} instead; both must make the same calls in the "
                                      "same order",
                                      local_ranks_.name(peer), theirs.to_string()));
  }
  if (slot.kind == MessageKind::kBytes && kind == MessageKind::kBytes)
    throw PeerError(
        rank, fmt::format("{} sends {} bytes where rank {} expects {}", local_ranks_.name(peer),
                          slot.total, local_ranks_.rank(self_), total));
  throw PeerError(rank, fmt::format("{} sends {} bytes that do not belong to this call; does it "
                                    "call send or exchange?",
                                    local_ranks_.name(peer), slot.total));
}

bool WindowMover::pull(Message& message) {
  Slot* slot = front(message.peer);
  if (slot == nullptr) return false;
  // Results and the rest share a queue; each message takes what is its own.
  if ((slot->kind == MessageKind::kResult) != (message.kind == MessageKind::kResult)) return false;
  const std::size_t piece = std::min(segment_.piece_bytes(), message.bytes - message.done);
  accept(message.peer, *slot, message.kind, piece, message.bytes);
  std::memcpy(message.data + message.done, slot->data(), piece);
  pop(message.peer);
  message.done += piece;
  left_ -= piece;
  if (message.kind == MessageKind::kCall && message.done == message.bytes)
    compare_calls(*mine_[at(message.peer)], theirs_[at(message.peer)],
                  local_ranks_.rank(message.peer));
  arrived_[at(message.peer)] = 1;
  return true;
}

bool WindowMover::reduce_piece() {
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
    if (slot == nullptr || slot->kind == MessageKind::kResult || !arrived_[at(peer)]) return false;
    accept(peer, *slot, MessageKind::kContribution, piece, sum_.bytes);
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

bool WindowMover::step() {
  bool moved = false, sending = false;
  std::fill(blocked_.begin(), blocked_.end(), 0);
  for (Message& message : sends_) {
    if (message.done == message.bytes) continue;
    const bool is_result = message.kind == MessageKind::kResult;
    if (!is_result) {
      sending = true;
      if (std::exchange(blocked_[at(message.peer)], 1)) continue;
    }
    moved |= push(message);
  }
  std::fill(blocked_.begin(), blocked_.end(), 0);
  for (Message& message : receives_) {
    if (message.done == message.bytes) continue;
    if (message.kind != MessageKind::kResult && std::exchange(blocked_[at(message.peer)], 1))
      continue;
    moved |= pull(message);
  }
  if (!(sum_.after_sends && sending)) moved |= reduce_piece();
  return moved;
}

void WindowMover::tell() {
  for (int peer = 0; peer < local_ranks_.size(); ++peer) {
    if (std::exchange(untold_[at(peer)], 0)) local_ranks_.wake(peer);
  }
}

const std::vector<int>& WindowMover::awaited() {
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
