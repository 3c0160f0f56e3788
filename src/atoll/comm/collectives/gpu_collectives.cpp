#include "atoll/comm/collectives/gpu_collectives.h"

#include <utility>

#include "atoll/comm/collectives/call_check.h"
#include "atoll/comm/collectives/ordered_reduce.h"
#include "atoll/tensor/arena.h"

namespace atl::comm {

namespace {

Tensor part_of(const Tensor& flat, const std::vector<std::int64_t>& parts, int member) {
  const auto i = static_cast<std::size_t>(member);
  return flat.reshaped({flat.num_elements()}).rows(parts[i], parts[i + 1]);
}

}  // namespace

void GpuCollectives::send(int to, const Tensor& tensor) {
  if (tensor.bytes() > 0) outgoing_.push_back({to, tensor.raw(), tensor.bytes()});
}

void GpuCollectives::receive(int from, const Tensor& tensor) {
  if (tensor.bytes() > 0) incoming_.push_back({from, tensor.raw(), tensor.bytes()});
}

void GpuCollectives::copy(const Tensor& from, const Tensor& to) {
  if (from.bytes() == 0 || from.raw() == to.raw()) return;
  links_->stream().copy(to.raw(), from.raw(), from.bytes());
}

void GpuCollectives::move(const Collective& call) {
  if (!outgoing_.empty() || !incoming_.empty()) {
    links_->exchange(call.members, call.self, outgoing_, incoming_);
  }
  outgoing_.clear();
  incoming_.clear();
}

// Nothing that was queued reads it any more: finish() has returned since.
Tensor GpuCollectives::scratch(Spec spec) {
  if (scratch_.bytes() < spec.bytes()) {
    scratch_ = Buffer();  // the old goes before the new is taken
    scratch_ = Buffer(links_->stream().device(), spec.bytes());
  }
  return tensor_in(scratch_, spec);
}

void GpuCollectives::compare(const Collective& call) {
  if (call.op == Op::kExchange) return;  // which only some ranks call
  const auto size = static_cast<std::size_t>(call.size());
  mine_.assign(size, make_header(call));
  theirs_.resize(size);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (std::size_t member = 0; member < size; ++member) {
    if (static_cast<int>(member) == call.self) continue;
    if (call.op == Op::kAllToAll) {
      mine_[member].to_peer = call.parts[member + 1] - call.parts[member];
      mine_[member].from_peer = call.result_parts[member + 1] - call.result_parts[member];
    }
    outgoing.push_back({call.members[member], &mine_[member], sizeof(CallHeader)});
    incoming.push_back({call.members[member], &theirs_[member], sizeof(CallHeader)});
  }
  base_.exchange(outgoing, incoming);
  for (std::size_t member = 0; member < size; ++member) {
    if (static_cast<int>(member) == call.self) continue;
    compare_calls(mine_[member], theirs_[member], call.members[member]);
  }
}

// Here, and not where something moves: a rank may have nothing to move.
void GpuCollectives::connect(const Collective& call) {
  if (is_connected(call.members)) return;
  ATOLL_CHECK(call.op != Op::kExchange, "{}: its ranks are not connected", call.to_string());
  links_->connect(call.members, call.self);
  connected_.insert(call.members);
}

void GpuCollectives::run(const Collective& call) {
  outgoing_.clear();
  incoming_.clear();
  compare(call);
  connect(call);
  links_->begin();
  queue(call);
  links_->finish();
}

bool GpuCollectives::links_sum(const Collective& call) const {
  return links_->has_own_sums() && call.reduce == Reduce::kSum && !call.accumulate &&
         (call.contributors.empty() || std::ssize(call.contributors) == call.size());
}

void GpuCollectives::queue(const Collective& call) {
  switch (call.op) {
    case Op::kAllReduce:
      if (!links_sum(call)) return all_reduce(call);
      return links_->all_reduce(call.members, call.data);
    case Op::kReduceScatter:
      if (!links_sum(call)) return reduce_scatter(call, call.parts, call.result);
      return links_->reduce_scatter(call.members, call.self, call.data, call.parts, call.result);
    case Op::kAllGather:
      return all_gather(call, call.parts);
    case Op::kBroadcast:
      return broadcast(call);
    case Op::kAllToAll:
      return all_to_all(call);
    case Op::kExchange:
      return exchange_pieces(call);
    case Op::kBarrier:
      return;
  }
}

void GpuCollectives::reduce_scatter(const Collective& call, const Parts& parts,
                                    const Tensor& result) {
  std::vector<int> contributors;
  for (int member = 0; member < call.size(); ++member) {
    if (contributes(call, member)) contributors.push_back(member);
  }
  const Spec spec = {result.dtype(), {std::ssize(contributors), result.num_elements()}};
  const Tensor given = scratch(spec);
  for (std::size_t k = 0; k < contributors.size(); ++k) {
    const auto row = static_cast<std::int64_t>(k);
    if (contributors[k] != call.self) {
      receive(contributors[k], given.rows(row, row + 1));
    } else {
      copy(part_of(call.data, parts, call.self), given.rows(row, row + 1));
    }
  }
  for (int member = 0; member < call.size() && contributes(call, call.self); ++member) {
    if (member != call.self) send(member, part_of(call.data, parts, member));
  }
  move(call);
  queue_ordered_reduce(links_->stream(), call.reduce, given, result, call.accumulate);
}

void GpuCollectives::all_gather(const Collective& call, const Parts& parts) {
  for (int member = 0; member < call.size(); ++member) {
    if (member == call.self) continue;
    send(member, part_of(call.data, parts, call.self));
    receive(member, part_of(call.data, parts, member));
  }
  move(call);
}

void GpuCollectives::all_reduce(const Collective& call) {
  const Parts parts = even_parts(call.data.num_elements(), call.size(), 1);
  reduce_scatter(call, parts, part_of(call.data, parts, call.self));
  all_gather(call, parts);
}

void GpuCollectives::broadcast(const Collective& call) {
  for (int member = 0; member < call.size() && call.self == call.root; ++member) {
    if (member != call.self) send(member, call.data);
  }
  if (call.self != call.root) receive(call.root, call.data);
  move(call);
}

void GpuCollectives::all_to_all(const Collective& call) {
  for (int member = 0; member < call.size(); ++member) {
    const Tensor from = part_of(call.data, call.parts, member);
    const Tensor to = part_of(call.result, call.result_parts, member);
    if (member == call.self) {
      copy(from, to);
    } else {
      send(member, from);
      receive(member, to);
    }
  }
  move(call);
}

void GpuCollectives::exchange_pieces(const Collective& call) {
  auto own = call.receives.begin();
  for (const Piece& piece : call.sends) {
    if (piece.peer != call.self) {
      send(piece.peer, piece.tensor);
      continue;
    }
    while (own != call.receives.end() && own->peer != call.self) ++own;
    ATOLL_CHECK(own != call.receives.end(), "{}: sends itself more than it receives",
                call.to_string());
    copy(piece.tensor, (own++)->tensor);
  }
  for (const Piece& piece : call.receives) {
    if (piece.peer != call.self) receive(piece.peer, piece.tensor);
  }
  move(call);
}

}  // namespace atl::comm
