#include "atoll/comm/collectives.h"

#include <algorithm>
#include <future>
#include <memory>

#include "atoll/base/check.h"
#include "atoll/comm/alone.h"
#include "atoll/comm/call_check.h"
#include "atoll/comm/call_header.h"
#include "atoll/comm/reduce.h"

namespace atl::comm {

namespace {

using Parts = std::vector<std::int64_t>;

constexpr std::size_t kSmall = std::size_t{64} << 10;    // bytes that latency outweighs
constexpr std::size_t kScratch = std::size_t{16} << 20;  // of a reduce_scatter, at most

/// One call under way.
struct Call {
  Transport& transport;
  const Collective& collective;

  int size() const { return collective.size(); }
  int self() const { return collective.self; }
  /// A member as a rank of the world.
  int world(int member) const { return collective.members[static_cast<std::size_t>(member)]; }
};

std::int64_t part_begin(const Parts& parts, int member) {
  return parts[static_cast<std::size_t>(member)];
}

std::int64_t part_size(const Parts& parts, int member) {
  return part_begin(parts, member + 1) - part_begin(parts, member);
}

/// Part `member` of a tensor.
struct Bytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
};
Bytes part_of(const Tensor& tensor, const Parts& parts, int member) {
  const std::size_t element = dtype_size(tensor.dtype());
  return {static_cast<std::byte*>(tensor.raw()) +
              static_cast<std::size_t>(part_begin(parts, member)) * element,
          static_cast<std::size_t>(part_size(parts, member)) * element};
}

/// Messages that move together; empty ones are left out on both sides.
class Messages {
 public:
  explicit Messages(const Call& call) : call_(call) {}

  void send(int member, const void* data, std::size_t bytes) {
    if (bytes != 0) outgoing_.push_back({call_.world(member), data, bytes});
  }
  void receive(int member, void* data, std::size_t bytes) {
    if (bytes != 0) incoming_.push_back({call_.world(member), data, bytes});
  }
  void move() {
    if (!outgoing_.empty() || !incoming_.empty()) call_.transport.exchange(outgoing_, incoming_);
    outgoing_.clear();
    incoming_.clear();
  }

 private:
  const Call& call_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

void compare_by_messages(const Call& call) {
  const Collective& collective = call.collective;
  const auto size = static_cast<std::size_t>(call.size());
  std::vector<CallHeader> mine(size, make_header(collective)), theirs(size);
  Messages messages(call);
  for (int member = 0; member < call.size(); ++member) {
    if (member == call.self()) continue;
    const auto i = static_cast<std::size_t>(member);
    if (collective.op == Op::kAllToAll) {
      mine[i].to_peer = part_size(collective.parts, member);
      mine[i].from_peer = part_size(collective.result_parts, member);
    }
    messages.send(member, &mine[i], sizeof(CallHeader));
    messages.receive(member, &theirs[i], sizeof(CallHeader));
  }
  messages.move();
  for (int member = 0; member < call.size(); ++member) {
    if (member == call.self()) continue;
    const auto i = static_cast<std::size_t>(member);
    compare_calls(mine[i], theirs[i], call.world(member));
  }
}

/// A sum of parts: what reduce_scatter does, and the first half of all_reduce.
class ReduceScatter {
 public:
  ReduceScatter(const Call& call, const Parts& parts, const Tensor& result)
      : call_(call), parts_(parts), result_(result) {
    const Collective& collective = call.collective;
    for (int member = 0; member < call.size(); ++member) {
      if (contributes(collective, member)) contributors_.push_back(member);
    }
    sends_ = contributes(collective, call.self());
    const auto others = static_cast<std::size_t>(call.size() - 1);
    const std::size_t element = dtype_size(result.dtype());
    const std::size_t bytes =
        std::min(std::max<std::size_t>(call.transport.piece_bytes(), 64), kScratch / (2 * others));
    std::int64_t largest = 0;
    for (int member = 0; member < call.size(); ++member) {
      largest = std::max(largest, part_size(parts, member));
    }
    chunk_ = std::clamp<std::int64_t>(largest, 1, static_cast<std::int64_t>(bytes / element));
    rounds_ = (largest + chunk_ - 1) / chunk_;
    room_ = static_cast<std::size_t>(chunk_) * element;
    if (part_size(parts, call.self()) != 0) {
      scratch_.reset(new std::byte[std::min<std::size_t>(2, static_cast<std::size_t>(rounds_)) *
                                   contributors_.size() * room_]);
    }
  }

  void run() {
    std::future<void> summing;  // of the round before; its end waits for it
    for (std::int64_t round = 0; round < rounds_; ++round) {
      move(round);
      if (summing.valid()) summing.get();
      if (elements(call_.self(), round) == 0) continue;
      if (round + 1 == rounds_) {
        sum(round);
      } else {
        summing = std::async(std::launch::async, [this, round] { sum(round); });
      }
    }
    if (summing.valid()) summing.get();
  }

 private:
  std::int64_t elements(int owner, std::int64_t round) const {
    return std::clamp<std::int64_t>(part_size(parts_, owner) - round * chunk_, 0, chunk_);
  }
  std::size_t bytes(int owner, std::int64_t round) const {
    return static_cast<std::size_t>(elements(owner, round)) * dtype_size(result_.dtype());
  }
  std::byte* at(const Tensor& tensor, std::int64_t element) const {
    return static_cast<std::byte*>(tensor.raw()) +
           static_cast<std::size_t>(element) * dtype_size(result_.dtype());
  }
  std::byte* room(std::size_t contributor, std::int64_t round) const {
    return scratch_.get() +
           (static_cast<std::size_t>(round % 2) * contributors_.size() + contributor) * room_;
  }

  void move(std::int64_t round) {
    Messages messages(call_);
    const std::int64_t offset = round * chunk_;
    for (int owner = 0; sends_ && owner < call_.size(); ++owner) {
      if (owner == call_.self() || elements(owner, round) == 0) continue;
      messages.send(owner, at(call_.collective.data, part_begin(parts_, owner) + offset),
                    bytes(owner, round));
    }
    for (std::size_t i = 0; i < contributors_.size(); ++i) {
      if (contributors_[i] == call_.self() || elements(call_.self(), round) == 0) continue;
      messages.receive(contributors_[i], room(i, round), bytes(call_.self(), round));
    }
    messages.move();
  }

  void sum(std::int64_t round) {
    const std::int64_t offset = round * chunk_;
    std::vector<const void*> sources;
    void* result = at(result_, offset);
    if (call_.collective.accumulate) sources.push_back(result);
    for (std::size_t i = 0; i < contributors_.size(); ++i) {
      sources.push_back(contributors_[i] == call_.self()
                            ? at(call_.collective.data, part_begin(parts_, call_.self()) + offset)
                            : room(i, round));
    }
    reduce_in_order(result_.dtype(), call_.collective.reduce, sources, {&result, 1},
                    elements(call_.self(), round));
  }

  const Call& call_;
  const Parts& parts_;
  Tensor result_;
  std::vector<int> contributors_;
  bool sends_ = false;
  std::int64_t chunk_ = 1;   // elements of a message
  std::int64_t rounds_ = 0;  // the same on all ranks
  std::size_t room_ = 0;     // bytes of a message
  std::unique_ptr<std::byte[]> scratch_;
};

/// Parts of data to all who have not got them yet: to all others, or to all but `root`.
void all_gather(const Call& call, const Parts& parts, int root = -1) {
  const Tensor& data = call.collective.data;
  const Bytes own = part_of(data, parts, call.self());
  Messages messages(call);
  // Each rank begins with its neighbour, so that not all send to rank 0 first.
  for (int step = 1; step < call.size(); ++step) {
    const int to = (call.self() + step) % call.size();
    const int from = (call.self() - step + call.size()) % call.size();
    const Bytes theirs = part_of(data, parts, from);
    if (to != root) messages.send(to, own.data, own.size);
    if (call.self() != root) messages.receive(from, theirs.data, theirs.size);
  }
  messages.move();
}

/// Everything to everyone, who sums for himself: one step.
void all_reduce_small(const Call& call) {
  const Tensor& data = call.collective.data;
  const std::size_t bytes = data.bytes();
  if (bytes == 0) return;
  const std::unique_ptr<std::byte[]> theirs(
      new std::byte[static_cast<std::size_t>(call.size()) * bytes]);
  Messages messages(call);
  std::vector<const void*> sources;
  for (int member = 0; member < call.size(); ++member) {
    std::byte* room = theirs.get() + static_cast<std::size_t>(member) * bytes;
    sources.push_back(member == call.self() ? data.raw() : room);
    if (member == call.self()) continue;
    messages.send(member, data.raw(), bytes);
    messages.receive(member, room, bytes);
  }
  messages.move();
  void* result = data.raw();
  reduce_in_order(data.dtype(), call.collective.reduce, sources, {&result, 1}, data.num_elements());
}

void all_reduce(const Call& call) {
  const Tensor& data = call.collective.data;
  const auto size = static_cast<std::size_t>(call.size());
  if (data.bytes() * size <= kSmall) return all_reduce_small(call);
  const Parts parts = even_parts(data.num_elements(), call.size(), 1);
  const Bytes own = part_of(data, parts, call.self());
  ReduceScatter(call, parts, Tensor(own.data, {data.dtype(), {part_size(parts, call.self())}}))
      .run();
  all_gather(call, parts);
}

void broadcast_tree(const Call& call) {
  const Tensor& data = call.collective.data;
  const int root = call.collective.root;
  const int place = (call.self() - root + call.size()) % call.size();
  for (int have = 1; have < call.size(); have *= 2) {  // the first `have` places have it
    Messages messages(call);
    const int peer = place < have ? place + have : place - have;
    const int member = (peer + root) % call.size();
    if (place < have && peer < call.size()) messages.send(member, data.raw(), data.bytes());
    if (place >= have && place < 2 * have) messages.receive(member, data.raw(), data.bytes());
    messages.move();
  }
}

void broadcast_parts(const Call& call) {
  const Tensor& data = call.collective.data;
  const int root = call.collective.root;
  const Parts parts = even_parts(data.num_elements(), call.size(), 1);
  Messages messages(call);
  if (call.self() == root) {
    for (int member = 0; member < call.size(); ++member) {
      const Bytes part = part_of(data, parts, member);
      if (member != root) messages.send(member, part.data, part.size);
    }
  } else {
    const Bytes part = part_of(data, parts, call.self());
    messages.receive(root, part.data, part.size);
  }
  messages.move();
  all_gather(call, parts, root);
}

void broadcast(const Call& call) {
  if (call.size() == 2 || call.collective.data.bytes() <= kSmall) return broadcast_tree(call);
  broadcast_parts(call);
}

void all_to_all(const Call& call) {
  const Collective& collective = call.collective;
  const Bytes kept = part_of(collective.data, collective.parts, call.self());
  const Bytes room = part_of(collective.result, collective.result_parts, call.self());
  Messages messages(call);
  for (int step = 1; step < call.size(); ++step) {
    const int to = (call.self() + step) % call.size();
    const int from = (call.self() - step + call.size()) % call.size();
    const Bytes out = part_of(collective.data, collective.parts, to);
    const Bytes in = part_of(collective.result, collective.result_parts, from);
    messages.send(to, out.data, out.size);
    messages.receive(from, in.data, in.size);
  }
  messages.move();
  std::copy_n(kept.data, kept.size, room.data);
}

// No headers: a peer may split the pieces of one exchange among several of its own, so none could
// be matched with the other's before they move. The transport compares sizes.
void exchange(const Call& call) {
  const Collective& collective = call.collective;
  copy_own_pieces(collective);
  Messages messages(call);
  for (const Piece& piece : collective.sends) {
    if (piece.peer == call.self()) continue;
    messages.send(piece.peer, piece.tensor.raw(), piece.tensor.bytes());
  }
  for (const Piece& piece : collective.receives) {
    if (piece.peer == call.self()) continue;
    messages.receive(piece.peer, piece.tensor.raw(), piece.tensor.bytes());
  }
  messages.move();
}

}  // namespace

void run_pieces(Transport& transport, const Collective& collective) {
  const Call call{transport, collective};
  if (collective.op == Op::kExchange) return exchange(call);
  compare_by_messages(call);
  switch (collective.op) {
    case Op::kAllReduce:
      return all_reduce(call);
    case Op::kReduceScatter:
      return ReduceScatter(call, collective.parts, collective.result).run();
    case Op::kAllGather:
      return all_gather(call, collective.parts);
    case Op::kBroadcast:
      return broadcast(call);
    case Op::kAllToAll:
      return all_to_all(call);
    default:
      return;  // a barrier is the comparison
  }
}

}  // namespace atl::comm
