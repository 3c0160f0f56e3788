#include "atoll/comm/group.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/comm/channel/channel.h"
#include "atoll/comm/collectives/call_check.h"

namespace atl::comm {

Group::Group(World& world, Channel& channel, std::vector<int> members, std::string name)
    : world_(world), channel_(channel), members_(std::move(members)), name_(std::move(name)) {
  const auto self = std::find(members_.begin(), members_.end(), channel.world().rank);
  ATOLL_CHECK(self != members_.end(), "rank {} makes the group {} and is no member of it",
              channel.world().rank, name_);
  rank_ = static_cast<int>(self - members_.begin());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    ATOLL_CHECK(members_[i] >= 0 && members_[i] < channel.world().size, "group {}: no rank {}",
                name_, members_[i]);
    ATOLL_CHECK(i == 0 || members_[i - 1] < members_[i], "group {}: members do not ascend", name_);
  }
  ATOLL_CHECK(std::includes(channel_.members().begin(), channel_.members().end(), members_.begin(),
                            members_.end()),
              "group {} has ranks that its channel {} does not have", name_, channel_.name());
  call_.members = members_;
  call_.self = rank_;
  call_.group = name_;
}

Collective& Group::call(Op op, Where where) {
  call_.op = op;
  call_.where = where;
  call_.data = call_.result = Tensor();
  call_.parts.clear();
  call_.result_parts.clear();
  call_.sends.clear();
  call_.receives.clear();
  call_.contributors.clear();
  call_.reduce = Reduce::kSum;
  call_.accumulate = false;
  call_.root = 0;
  return call_;
}

void Group::admit(Collective& collective) {
  collective.sequence = collective.op == Op::kExchange ? ++exchanges_ : ++sequence_;
  check_call(collective);
  if (size() == 1) return;
  const Bytes moved = bytes_of_call(collective);
  traffic_.sent += moved.sent;
  traffic_.received += moved.received;
  ++traffic_.collectives;
}

bool Group::leaves_out(const Collective& collective) const {
  const auto& is_left_out = channel_.world().options.leaves_out;
  return is_left_out && size() > 1 && is_left_out(collective);
}

void Group::run(Collective& collective, Channel& channel) {
  if (leaves_out(collective)) return;
  admit(collective);
  channel.run(collective);
}

Work Group::start(Collective& collective, Channel& channel) {
  if (leaves_out(collective)) return {};
  admit(collective);
  return channel.start(collective);
}

Channel& Group::to(int peer) const {
  for (const PairChannels& pair : pairs_)
    if (pair.peer == peer) return *pair.to;
  return channel_;
}

Channel& Group::from(int peer) const {
  for (const PairChannels& pair : pairs_)
    if (pair.peer == peer) return *pair.from;
  return channel_;
}

namespace {

void set_parts(Collective& collective, std::span<const std::int64_t> parts) {
  collective.parts.assign(parts.begin(), parts.end());
}

}  // namespace

Collective& Group::all_reduce_call(const Tensor& data, Reduce reduce, Where where) {
  Collective& collective = call(Op::kAllReduce, where);
  collective.data = data;
  collective.reduce = reduce;
  return collective;
}

void Group::all_reduce(Tensor data, Reduce reduce, Where where) {
  run(all_reduce_call(data, reduce, where), channel_);
}

Work Group::start_all_reduce(Tensor data, Reduce reduce, Where where) {
  return start(all_reduce_call(data, reduce, where), channel_);
}

Collective& Group::reduce_scatter_call(const Tensor& data, std::span<const std::int64_t> parts,
                                       const Tensor& result, const ReduceScatter& how,
                                       Where where) {
  Collective& collective = call(Op::kReduceScatter, where);
  collective.data = data;
  collective.result = result;
  set_parts(collective, parts);
  collective.reduce = how.reduce;
  collective.accumulate = how.accumulate;
  collective.contributors.assign(how.contributors.begin(), how.contributors.end());
  return collective;
}

void Group::reduce_scatter(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                           const ReduceScatter& how, Where where) {
  run(reduce_scatter_call(data, parts, result, how, where), channel_);
}

Work Group::start_reduce_scatter(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                                 const ReduceScatter& how, Where where) {
  return start(reduce_scatter_call(data, parts, result, how, where), channel_);
}

Collective& Group::all_gather_call(const Tensor& data, std::span<const std::int64_t> parts,
                                   Where where) {
  Collective& collective = call(Op::kAllGather, where);
  collective.data = data;
  set_parts(collective, parts);
  return collective;
}

void Group::all_gather(Tensor data, std::span<const std::int64_t> parts, Where where) {
  run(all_gather_call(data, parts, where), channel_);
}

Work Group::start_all_gather(Tensor data, std::span<const std::int64_t> parts, Where where) {
  return start(all_gather_call(data, parts, where), channel_);
}

Collective& Group::broadcast_call(const Tensor& data, int root, Where where) {
  Collective& collective = call(Op::kBroadcast, where);
  collective.data = data;
  collective.root = root;
  return collective;
}

void Group::broadcast(Tensor data, int root, Where where) {
  run(broadcast_call(data, root, where), channel_);
}

Work Group::start_broadcast(Tensor data, int root, Where where) {
  return start(broadcast_call(data, root, where), channel_);
}

Collective& Group::all_to_all_call(const Tensor& data, std::span<const std::int64_t> parts,
                                   const Tensor& result, std::span<const std::int64_t> result_parts,
                                   Where where) {
  Collective& collective = call(Op::kAllToAll, where);
  collective.data = data;
  collective.result = result;
  set_parts(collective, parts);
  collective.result_parts.assign(result_parts.begin(), result_parts.end());
  return collective;
}

void Group::all_to_all(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                       std::span<const std::int64_t> result_parts, Where where) {
  run(all_to_all_call(data, parts, result, result_parts, where), channel_);
}

Work Group::start_all_to_all(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                             std::span<const std::int64_t> result_parts, Where where) {
  return start(all_to_all_call(data, parts, result, result_parts, where), channel_);
}

Collective& Group::exchange_call(std::span<const Piece> sends, std::span<const Piece> receives,
                                 Where where) {
  Collective& collective = call(Op::kExchange, where);
  collective.sends.assign(sends.begin(), sends.end());
  collective.receives.assign(receives.begin(), receives.end());
  return collective;
}

void Group::exchange(std::span<const Piece> sends, std::span<const Piece> receives, Where where) {
  run(exchange_call(sends, receives, where), channel_);
}

Work Group::start_exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                           Where where) {
  return start(exchange_call(sends, receives, where), channel_);
}

void Group::send(Tensor data, int to, Where where) {
  const Piece piece{to, data};
  run(exchange_call({&piece, 1}, {}, where), this->to(to));
}

Work Group::start_send(Tensor data, int to, Where where) {
  const Piece piece{to, data};
  return start(exchange_call({&piece, 1}, {}, where), this->to(to));
}

void Group::recv(Tensor data, int from, Where where) {
  const Piece piece{from, data};
  run(exchange_call({}, {&piece, 1}, where), this->from(from));
}

Work Group::start_recv(Tensor data, int from, Where where) {
  const Piece piece{from, data};
  return start(exchange_call({}, {&piece, 1}, where), this->from(from));
}

void Group::barrier(Where where) {
  run(call(Op::kBarrier, where), channel_);
}

std::vector<std::int64_t> Group::even_parts(std::int64_t n, std::int64_t multiple) const {
  return comm::even_parts(n, size(), multiple);
}

}  // namespace atl::comm
