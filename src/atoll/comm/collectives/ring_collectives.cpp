#include "atoll/comm/collectives/ring_collectives.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::comm {

namespace {

// A message costs some microseconds whatever it carries; a larger one than this gains nothing.
constexpr std::size_t kLeastPiece = std::size_t{16} << 10, kMostPiece = std::size_t{1} << 20;
// Pieces for each node of a sum: the chain fills and drains in 2 N steps, 3% of 64 N.
constexpr int kPiecesOfSum = 64;
// Pieces for each node of what is spread; all ranks begin at once, but for a broadcast.
constexpr int kPiecesOfSpread = 16;

}  // namespace

RingCollectives::RingCollectives(Transport* transport)
    : transport_(transport), messages_(transport), sum_(messages_) {}

bool RingCollectives::can_run(const Collective& collective) {
  return collective.op != Op::kAllToAll && collective.op != Op::kExchange;
}

std::size_t RingCollectives::piece_bytes(std::size_t bytes, int pieces_a_node) const {
  const std::size_t pieces = static_cast<std::size_t>(pieces_a_node) *
                             static_cast<std::size_t>(nodes_->size()) *
                             static_cast<std::size_t>(nodes_->lanes());
  return std::min(std::clamp(bytes / pieces, kLeastPiece, kMostPiece),
                  std::max<std::size_t>(transport_->piece_bytes(), 64));
}

void RingCollectives::add_peer(int member) {
  if (member != call_->self && std::find(peers_.begin(), peers_.end(), member) == peers_.end())
    peers_.push_back(member);
}

// With all whom this call has messages for or from, which connects them. Who calls something else
// ends, and tells all others so.
void RingCollectives::compare() {
  const int node = nodes_->node_of(call_->self);
  const int place = call_->self - nodes_->begin(node);
  peers_.clear();
  for (int member = nodes_->begin(node); member < nodes_->begin(node + 1); ++member)
    add_peer(member);
  if (place < nodes_->lanes()) {
    add_peer(nodes_->leader(nodes_->previous(node), place));
    add_peer(nodes_->leader(nodes_->next(node), place));
  }
  mine_ = make_header(*call_);
  theirs_.resize(peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    messages_.send(world(peers_[i]), &mine_, sizeof mine_);
    messages_.receive(world(peers_[i]), &theirs_[i], sizeof mine_);
  }
  messages_.move();
  for (std::size_t i = 0; i < peers_.size(); ++i)
    compare_calls(mine_, theirs_[i], world(peers_[i]));
}

std::int64_t RingCollectives::begin_of(int owner) const {
  return call_->op == Op::kBroadcast ? 0 : call_->parts[static_cast<std::size_t>(owner)];
}

std::int64_t RingCollectives::end_of(int owner) const {
  return call_->op == Op::kBroadcast ? call_->data.num_elements()
                                     : call_->parts[static_cast<std::size_t>(owner) + 1];
}

/// all_gather and broadcast: what an owner has goes to the leader of its node, round the ring, and
/// in each node from its leader to the others. Piece k leaves the owner at step k.
void RingCollectives::spread(int first_owner, int last_owner) {
  const std::size_t element = dtype_size(call_->data.dtype());
  const std::size_t bytes =
      piece_bytes(call_->data.bytes(), call_->op == Op::kBroadcast ? kPiecesOfSpread : 1);
  chunk_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / element));
  std::int64_t most = 0;
  for (int owner = first_owner; owner <= last_owner; ++owner)
    most = std::max(most, end_of(owner) - begin_of(owner));
  const std::int64_t in_round = chunk_ * nodes_->lanes();
  const std::int64_t steps = (most + in_round - 1) / in_round + nodes_->size() + 1;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (int lane = 0; lane < nodes_->lanes(); ++lane)
      for (int owner = first_owner; owner <= last_owner; ++owner) add_messages(lane, step, owner);
    messages_.move();
  }
}

// Both ends of a pair add what goes between them in this order.
void RingCollectives::add_messages(int lane, std::int64_t step, int owner) {
  const int self = call_->self, node = nodes_->node_of(self), home = nodes_->node_of(owner);
  const int leading = nodes_->leader(node, lane), hops = nodes_->distance(home, node);
  const std::size_t element = dtype_size(call_->data.dtype());
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  const auto find = [&](std::int64_t k) {
    const std::int64_t begin = begin_of(owner) + (k * nodes_->lanes() + lane) * chunk_;
    if (k < 0 || begin >= end_of(owner)) return false;
    data = static_cast<std::byte*>(call_->data.raw()) + static_cast<std::size_t>(begin) * element;
    bytes = static_cast<std::size_t>(std::min(chunk_, end_of(owner) - begin)) * element;
    return true;
  };
  if (hops == 0 && owner != leading && find(step)) {
    if (self == owner) messages_.send(world(leading), data, bytes);
    if (self == leading) messages_.receive(world(owner), data, bytes);
  }
  if (hops > 0 && self == leading && find(step - hops))
    messages_.receive(world(nodes_->leader(nodes_->previous(node), lane)), data, bytes);
  if (!find(step - 1 - hops)) return;
  if (self == leading && hops + 1 < nodes_->size())
    messages_.send(world(nodes_->leader(nodes_->next(node), lane)), data, bytes);
  for (int member = nodes_->begin(node); member < nodes_->begin(node + 1); ++member) {
    if (member == leading || member == owner) continue;
    if (self == leading) messages_.send(world(member), data, bytes);
    if (self == member) messages_.receive(world(leading), data, bytes);
  }
}

// A sum of nothing comes back to a rank only when all have given theirs.
void RingCollectives::barrier() {
  token_ = 0;
  token_call_ = *call_;
  token_call_.op = Op::kAllReduce;
  token_call_.reduce = Reduce::kMax;
  token_call_.data = Tensor(&token_, {Dtype::kI32, {1}});
  sum_.run(token_call_, *nodes_, kLeastPiece);
}

void RingCollectives::run(const Collective& collective, const RingNodes& nodes) {
  call_ = &collective;
  nodes_ = &nodes;
  messages_.clear();
  compare();
  switch (collective.op) {
    case Op::kAllReduce:
      return sum_.run(collective, nodes, piece_bytes(collective.data.bytes(), kPiecesOfSum));
    case Op::kReduceScatter: {
      const std::size_t bytes =
          static_cast<std::size_t>(collective.parts.back()) * dtype_size(collective.result.dtype());
      return sum_.run(collective, nodes, piece_bytes(bytes, kPiecesOfSum));
    }
    case Op::kAllGather:
      return spread(0, collective.size() - 1);
    case Op::kBroadcast:
      return spread(collective.root, collective.root);
    case Op::kBarrier:
      return barrier();
    default:
      ATOLL_CHECK(false, "{} does not go round a ring", op_name(collective.op));
  }
}

}  // namespace atl::comm
