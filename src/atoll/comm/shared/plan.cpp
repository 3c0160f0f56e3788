#include "atoll/comm/shared/plan.h"

#include <cstring>

#include "atoll/base/check.h"
#include "atoll/comm/collectives/call_check.h"

namespace atl::comm::shared {

namespace {

std::byte* bytes_at(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) +
         static_cast<std::size_t>(element) * dtype_size(tensor.dtype());
}

std::size_t part_bytes(const std::vector<std::int64_t>& parts, int r, Dtype dtype) {
  const auto i = static_cast<std::size_t>(r);
  return static_cast<std::size_t>(parts[i + 1] - parts[i]) * dtype_size(dtype);
}

/// The part of rank `r` when the data is shared evenly.
Message even_part(const Tensor& data, int size, int r) {
  const std::int64_t n = data.num_elements();
  const std::int64_t begin = even_begin(n, size, 1, r), end = even_begin(n, size, 1, r + 1);
  Message message;
  message.data = bytes_at(data, begin);
  message.bytes = static_cast<std::size_t>(end - begin) * dtype_size(data.dtype());
  return message;
}

void all_reduce(const Collective& collective, const std::vector<int>& places, std::size_t small,
                MessageMover& mover) {
  const Tensor& data = collective.data;
  const int self = collective.self, size = collective.size();
  Reduction& sum = mover.reduction();
  sum.dtype = data.dtype();
  sum.how = collective.reduce;
  sum.contributors.assign(places.begin(), places.end());
  if (data.bytes() <= small) {
    for (const int peer : places)
      if (peer != places[static_cast<std::size_t>(self)])
        mover.send({peer, MessageKind::kContribution, bytes_at(data, 0), data.bytes()});
    sum.own = sum.result = bytes_at(data, 0);
    sum.bytes = data.bytes();
    sum.after_sends = true;
    return mover.reduce();
  }
  // Each rank sums a part; a piece of it goes to the others as soon as it is summed.
  const Message own = even_part(data, size, self);
  sum.own = sum.result = own.data;
  sum.bytes = own.bytes;
  for (int i = 1; i < size; ++i) {
    const int r = (self + i) % size, peer = places[static_cast<std::size_t>(r)];
    const Message part = even_part(data, size, r);
    mover.send({peer, MessageKind::kResult, sum.result, sum.bytes, mover.reduced()});
    mover.send({peer, MessageKind::kContribution, part.data, part.bytes});
    mover.receive({peer, MessageKind::kResult, part.data, part.bytes});
  }
  mover.reduce();
}

void reduce_scatter(const Collective& collective, const std::vector<int>& places,
                    MessageMover& mover) {
  const int self = collective.self, size = collective.size();
  const std::vector<std::int64_t>& parts = collective.parts;
  const Dtype dtype =
      collective.result.defined() ? collective.result.dtype() : collective.data.dtype();
  const bool sends = contributes(collective, self);
  if (sends) {
    for (int i = 1; i < size; ++i) {
      const int r = (self + i) % size;
      mover.send({places[static_cast<std::size_t>(r)], MessageKind::kContribution,
                  bytes_at(collective.data, parts[static_cast<std::size_t>(r)]),
                  part_bytes(parts, r, dtype)});
    }
  }
  if (part_bytes(parts, self, dtype) == 0) return;
  Reduction& sum = mover.reduction();
  sum.dtype = dtype;
  sum.how = collective.reduce;
  sum.accumulate = collective.accumulate;
  for (int r = 0; r < size; ++r)
    if (contributes(collective, r)) sum.contributors.push_back(places[static_cast<std::size_t>(r)]);
  sum.bytes = part_bytes(parts, self, dtype);
  if (sends) sum.own = bytes_at(collective.data, parts[static_cast<std::size_t>(self)]);
  sum.result = bytes_at(collective.result, 0);
  mover.reduce();
}

void all_gather(const Collective& collective, const std::vector<int>& places, MessageMover& mover) {
  const Tensor& data = collective.data;
  const int self = collective.self, size = collective.size();
  const auto part = [&](int r) {
    return bytes_at(data, collective.parts[static_cast<std::size_t>(r)]);
  };
  for (int i = 1; i < size; ++i) {
    const int r = (self + i) % size, peer = places[static_cast<std::size_t>(r)];
    mover.send({peer, MessageKind::kContribution, part(self),
                part_bytes(collective.parts, self, data.dtype())});
    mover.receive(
        {peer, MessageKind::kContribution, part(r), part_bytes(collective.parts, r, data.dtype())});
  }
}

// The root gives each rank a part, which that rank passes on while it comes: the root sends the
// data twice at most, whatever the number of ranks.
void broadcast(const Collective& collective, const std::vector<int>& places, MessageMover& mover) {
  const Tensor& data = collective.data;
  const int self = collective.self, size = collective.size(), root = collective.root;
  const auto message = [&](int peer, MessageKind kind, int part) {
    Message message = even_part(data, size, part);
    message.peer = places[static_cast<std::size_t>(peer)];
    message.kind = kind;
    return message;
  };
  const std::size_t* come = nullptr;
  if (self != root) {
    const Message own = message(root, MessageKind::kContribution, self);
    mover.receive(own);
    if (own.bytes > 0) come = mover.received();
    mover.receive(message(root, MessageKind::kResult, root));
  }
  for (int r = 0; r < size; ++r) {
    if (r == self || r == root) continue;
    if (self == root) mover.send(message(r, MessageKind::kContribution, r));
    Message passed = message(r, MessageKind::kResult, self);
    passed.ready = come;
    mover.send(passed);
    if (self != root) mover.receive(message(r, MessageKind::kResult, r));
  }
}

void all_to_all(const Collective& collective, const std::vector<int>& places, MessageMover& mover) {
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
    const int r = (self + i) % size, peer = places[static_cast<std::size_t>(r)];
    mover.send({peer, MessageKind::kContribution, from(r), part_bytes(collective.parts, r, dtype)});
    mover.receive(
        {peer, MessageKind::kContribution, to(r), part_bytes(collective.result_parts, r, dtype)});
  }
}

}  // namespace

void add_messages(const Collective& collective, const std::vector<int>& places, std::size_t small,
                  MessageMover& mover) {
  switch (collective.op) {
    case Op::kAllReduce:
      return all_reduce(collective, places, small, mover);
    case Op::kReduceScatter:
      return reduce_scatter(collective, places, mover);
    case Op::kAllGather:
      return all_gather(collective, places, mover);
    case Op::kBroadcast:
      return broadcast(collective, places, mover);
    case Op::kAllToAll:
      return all_to_all(collective, places, mover);
    case Op::kBarrier:
      return;  // the comparison of the calls is the barrier
    case Op::kExchange:
      break;
  }
  ATOLL_CHECK(false, "{} is no collective of a plan", op_name(collective.op));
}

}  // namespace atl::comm::shared
