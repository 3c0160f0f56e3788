#include "atoll/comm/shared/windows.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/comm/call_check.h"

namespace atl::comm::shared {

namespace {

using Clock = std::chrono::steady_clock;

// How often a rank that waits looks whether the others still live.
constexpr auto kLook = std::chrono::milliseconds(50);
// How often, when a network wants to be looked after too.
constexpr auto kLookBesides = std::chrono::microseconds(200);
// Up to here every rank sends all to all and sums all: one journey instead of two.
constexpr std::size_t kSmall = 8192;

std::byte* bytes_at(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) +
         static_cast<std::size_t>(element) * dtype_size(tensor.dtype());
}

std::size_t part_bytes(const std::vector<std::int64_t>& parts, int r, Dtype dtype) {
  const auto i = static_cast<std::size_t>(r);
  return static_cast<std::size_t>(parts[i + 1] - parts[i]) * dtype_size(dtype);
}

}  // namespace

Windows::Windows(Segment segment, std::vector<Peer> peers, int self, double timeout_s)
    : segment_(std::move(segment)),
      peers_(segment_, std::move(peers), self),
      timeout_s_(timeout_s) {}

bool Windows::holds(std::span<const int> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return holds(rank); });
}

std::vector<int> Windows::places(const Collective& collective) const {
  std::vector<int> members;
  for (const int rank : collective.members) members.push_back(peers_.find(rank));
  return members;
}

void Windows::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                       Network* besides) {
  Movement movement(segment_, peers_);
  movement.reserve(outgoing.size() + incoming.size());
  for (const Outgoing& out : outgoing)
    movement.send({peers_.find(out.to), Kind::kBytes,
                   static_cast<std::byte*>(const_cast<void*>(out.data)), out.bytes});
  for (const Incoming& in : incoming)
    movement.receive(
        {peers_.find(in.from), Kind::kBytes, static_cast<std::byte*>(in.data), in.bytes});
  complete(movement, "an exchange", besides);
}

void Windows::run(const Collective& collective) {
  const std::vector<int> members = places(collective);
  std::vector<CallHeader> headers(members.size(), make_header(collective));
  if (collective.op == Op::kAllToAll) {
    for (std::size_t r = 0; r < members.size(); ++r) {
      headers[r].to_peer = collective.parts[r + 1] - collective.parts[r];
      headers[r].from_peer = collective.result_parts[r + 1] - collective.result_parts[r];
    }
  }
  Movement movement(segment_, peers_);
  movement.reserve(4 * members.size());
  movement.compare(members, headers);
  add_messages(collective, members, movement);
  complete(movement, collective.to_string(), nullptr);
}

void Windows::add_messages(const Collective& collective, const std::vector<int>& members,
                           Movement& movement) {
  switch (collective.op) {
    case Op::kAllReduce:
      return all_reduce(collective, members, movement);
    case Op::kReduceScatter:
      return reduce_scatter(collective, members, movement);
    case Op::kAllGather:
      return all_gather(collective, members, movement);
    case Op::kBroadcast:
      return broadcast(collective, members, movement);
    case Op::kAllToAll:
      return all_to_all(collective, members, movement);
    case Op::kBarrier:
      return;  // that the calls were compared is all
    case Op::kExchange:
      break;
  }
  ATOLL_CHECK(false, "{} is not for windows", op_name(collective.op));
}

void Windows::all_reduce(const Collective& collective, const std::vector<int>& members,
                         Movement& movement) {
  const Tensor& data = collective.data;
  const int self = collective.self, size = collective.size();
  Reduction sum{data.dtype(), collective.reduce, false, members};
  if (data.bytes() <= kSmall) {
    for (const int peer : members)
      if (peer != members[static_cast<std::size_t>(self)])
        movement.send({peer, Kind::kPart, bytes_at(data, 0), data.bytes()});
    sum.own = sum.result = bytes_at(data, 0);
    sum.bytes = data.bytes();
    sum.after_sends = true;
    return movement.reduce(std::move(sum));
  }
  // Each rank sums a part; a piece of it goes to the others as soon as it is summed.
  const std::vector<std::int64_t> parts = even_parts(data.num_elements(), size, 1);
  sum.own = sum.result = bytes_at(data, parts[static_cast<std::size_t>(self)]);
  sum.bytes = part_bytes(parts, self, data.dtype());
  for (int i = 1; i < size; ++i) {
    const int r = (self + i) % size, peer = members[static_cast<std::size_t>(r)];
    std::byte* part = bytes_at(data, parts[static_cast<std::size_t>(r)]);
    const std::size_t bytes = part_bytes(parts, r, data.dtype());
    movement.send({peer, Kind::kEcho, sum.result, sum.bytes, movement.reduced()});
    movement.send({peer, Kind::kPart, part, bytes});
    movement.receive({peer, Kind::kEcho, part, bytes});
  }
  movement.reduce(std::move(sum));
}

void Windows::reduce_scatter(const Collective& collective, const std::vector<int>& members,
                             Movement& movement) {
  const int self = collective.self, size = collective.size();
  const std::vector<std::int64_t>& parts = collective.parts;
  const Dtype dtype =
      collective.result.defined() ? collective.result.dtype() : collective.data.dtype();
  const bool sends = contributes(collective, self);
  if (sends) {
    for (int i = 1; i < size; ++i) {
      const int r = (self + i) % size;
      movement.send({members[static_cast<std::size_t>(r)], Kind::kPart,
                     bytes_at(collective.data, parts[static_cast<std::size_t>(r)]),
                     part_bytes(parts, r, dtype)});
    }
  }
  Reduction sum{dtype, collective.reduce, collective.accumulate};
  for (int r = 0; r < size; ++r)
    if (contributes(collective, r))
      sum.contributors.push_back(members[static_cast<std::size_t>(r)]);
  sum.bytes = part_bytes(parts, self, dtype);
  if (sum.bytes == 0) return;
  if (sends) sum.own = bytes_at(collective.data, parts[static_cast<std::size_t>(self)]);
  sum.result = bytes_at(collective.result, 0);
  movement.reduce(std::move(sum));
}

void Windows::all_gather(const Collective& collective, const std::vector<int>& members,
                         Movement& movement) {
  const Tensor& data = collective.data;
  const int self = collective.self, size = collective.size();
  const auto part = [&](int r) {
    return bytes_at(data, collective.parts[static_cast<std::size_t>(r)]);
  };
  for (int i = 1; i < size; ++i) {
    const int r = (self + i) % size, peer = members[static_cast<std::size_t>(r)];
    movement.send(
        {peer, Kind::kPart, part(self), part_bytes(collective.parts, self, data.dtype())});
    movement.receive({peer, Kind::kPart, part(r), part_bytes(collective.parts, r, data.dtype())});
  }
}

// The root gives each rank a part, which that rank passes on while it comes: the root sends the
// data twice at most, whatever the number of ranks.
void Windows::broadcast(const Collective& collective, const std::vector<int>& members,
                        Movement& movement) {
  const Tensor& data = collective.data;
  const int self = collective.self, size = collective.size(), root = collective.root;
  const std::vector<std::int64_t> parts = even_parts(data.num_elements(), size, 1);
  const auto message = [&](int peer, Kind kind, int part) {
    return Message{members[static_cast<std::size_t>(peer)], kind,
                   bytes_at(data, parts[static_cast<std::size_t>(part)]),
                   part_bytes(parts, part, data.dtype())};
  };
  const std::size_t* come = nullptr;
  if (self != root) {
    const Message own = message(root, Kind::kPart, self);
    movement.receive(own);
    if (own.bytes > 0) come = movement.received();
    movement.receive(message(root, Kind::kEcho, root));
  }
  for (int r = 0; r < size; ++r) {
    if (r == self || r == root) continue;
    if (self == root) movement.send(message(r, Kind::kPart, r));
    Message passed = message(r, Kind::kEcho, self);
    passed.ready = come;
    movement.send(passed);
    if (self != root) movement.receive(message(r, Kind::kEcho, r));
  }
}

void Windows::all_to_all(const Collective& collective, const std::vector<int>& members,
                         Movement& movement) {
  const int self = collective.self, size = collective.size();
  const Dtype dtype = collective.data.dtype();
  const auto from = [&](int r) {
    return bytes_at(collective.data, collective.parts[static_cast<std::size_t>(r)]);
  };
  const auto to = [&](int r) {
    return bytes_at(collective.result, collective.result_parts[static_cast<std::size_t>(r)]);
  };
  if (const std::size_t own = part_bytes(collective.parts, self, dtype))
    std::memmove(to(self), from(self), own);
  for (int i = 1; i < size; ++i) {
    const int r = (self + i) % size, peer = members[static_cast<std::size_t>(r)];
    movement.send({peer, Kind::kPart, from(r), part_bytes(collective.parts, r, dtype)});
    movement.receive({peer, Kind::kPart, to(r), part_bytes(collective.result_parts, r, dtype)});
  }
}

void Windows::abort(const std::string& why) noexcept {
  const int self = peers_.self();
  peers_.fail(peers_.rank(self), fmt::format("{} ended with an error: {}", peers_.name(self), why));
}

void Windows::complete(Movement& movement, const std::string& call, Network* besides) {
  peers_.throw_failure();
  peers_.enter(call);
  const auto start = Clock::now();
  auto looked = start;
  while (!movement.done()) {
    const std::uint32_t bell = peers_.bell();
    if (movement.step()) continue;
    if (besides != nullptr) besides->progress();
    peers_.wait(bell, besides != nullptr ? kLookBesides : kLook);
    peers_.throw_failure();
    const auto now = Clock::now();
    if (now - looked < kLook) continue;
    looked = now;
    // What a rank sent before it ended is taken first.
    const int lost = peers_.lost(movement.awaited());
    if (lost >= 0 && !movement.step()) peers_.fail_lost(lost);
    if (std::chrono::duration<double>(now - start).count() > timeout_s_) time_out(movement);
  }
  peers_.leave();
}

void Windows::time_out(const Movement& movement) {
  const int local = peers_.suspect(movement.awaited(), movement.arrived());
  const int rank = local < 0 ? -1 : peers_.rank(local);
  const std::string text = local < 0
                               ? fmt::format("not done within {} s", timeout_s_)
                               : fmt::format("{} is missing after {} s; {}", peers_.name(local),
                                             timeout_s_, peers_.describe(local));
  peers_.fail(rank, text);
  peers_.throw_failure();
  throw PeerError(rank, text);
}

}  // namespace atl::comm::shared
