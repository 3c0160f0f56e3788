#include "atoll/comm/collectives/ring_sum.h"

#include <algorithm>

#include "atoll/comm/collectives/call_check.h"
#include "atoll/comm/collectives/reduce.h"
#include "atoll/simd/bf16.h"

namespace atl::comm {

namespace {

constexpr std::size_t kLine = 64;

std::int64_t part_begin(const Collective& call, int member) {
  return call.parts[static_cast<std::size_t>(member)];
}

std::byte* bytes_at(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) +
         static_cast<std::size_t>(element) * dtype_size(tensor.dtype());
}

void widen(const void* from, std::byte* to, std::int64_t count) {
  const auto* in = static_cast<const Bf16*>(from);
  auto* out = reinterpret_cast<float*>(to);
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_f32(in[i]);
}

void narrow(const std::byte* from, std::byte* to, std::int64_t count) {
  const auto* in = reinterpret_cast<const float*>(from);
  auto* out = reinterpret_cast<Bf16*>(to);
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_bf16(in[i]);
}

}  // namespace

std::size_t RingSum::bytes(const Piece& piece) const {
  return static_cast<std::size_t>(piece.count) * dtype_size(dtype_);
}

std::size_t RingSum::partial_bytes(const Piece& piece) const {
  return static_cast<std::size_t>(piece.count) * dtype_size(partial_dtype_);
}

std::byte* RingSum::data(const Piece& piece) const {
  return bytes_at(call_->data, piece.begin);
}

std::byte* RingSum::owned(const Piece& piece) const {
  return bytes_at(call_->result, piece.begin - part_begin(*call_, piece.owner));
}

int RingSum::result_hops(const Piece& piece) const {
  return reduces_all() ? nodes_->size() - 1 : nodes_->distance(last_node_, node_of(piece.owner));
}

void RingSum::cut_part(std::int64_t begin, std::int64_t end, std::int64_t chunk, int owner) {
  for (; begin < end; begin += chunk)
    pieces_.push_back({begin, std::min(chunk, end - begin), owner});
}

void RingSum::cut(std::size_t piece_bytes) {
  const auto chunk = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(piece_bytes / dtype_size(partial_dtype_)));
  pieces_.clear();
  if (reduces_all()) {
    cut_part(0, call_->data.num_elements(), chunk, -1);
  } else {
    for (int owner = 0; owner < call_->size(); ++owner)
      cut_part(part_begin(*call_, owner), part_begin(*call_, owner + 1), chunk, owner);
  }
  largest_ = 0;
  for (const Piece& piece : pieces_) largest_ = std::max(largest_, piece.count);
}

void RingSum::find_contributors() {
  int sources = call_->accumulate ? 1 : 0;
  first_node_ = last_node_ = -1;
  for (int member = 0; member < call_->size(); ++member) {
    if (!contributes(*call_, member)) continue;
    ++sources;
    last_node_ = node_of(member);
    if (first_node_ < 0) first_node_ = last_node_;
  }
  // A single value stays as it is: nothing is rounded.
  partial_dtype_ = dtype_ == Dtype::kBf16 && sources > 1 ? Dtype::kF32 : dtype_;
}

const RingSum::Piece* RingSum::piece(int lane, std::int64_t k) const {
  if (k < 0) return nullptr;
  const auto i = static_cast<std::size_t>(k * nodes_->lanes() + lane);
  return i < pieces_.size() ? &pieces_[i] : nullptr;
}

// The scratch only grows: after the first step no call allocates.
void RingSum::make_room() {
  const int ranks = nodes_->begin(node_ + 1) - nodes_->begin(node_);
  contributed_.assign(static_cast<std::size_t>(ranks), nullptr);
  widened_.assign(static_cast<std::size_t>(ranks) + 2, nullptr);
  if (own_lane_ < 0) return;
  const auto lines = [&](Dtype dtype) {
    return (static_cast<std::size_t>(largest_) * dtype_size(dtype) + kLine - 1) / kLine * kLine;
  };
  const std::size_t whole = lines(dtype_), partial = lines(partial_dtype_);
  const bool widens = partial_dtype_ != dtype_;
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t needed =
      2 * partial + (4 + count) * whole + (widens ? (count + 2) * partial : 0) + kLine;
  if (scratch_.size() < needed) scratch_.resize(needed);
  std::byte* next = scratch_.data();
  const auto take = [&](std::size_t bytes) { return std::exchange(next, next + bytes); };
  partial_in_ = take(partial);
  partial_out_ = take(partial);
  for (Slots* slots : {&earlier_, &results_})
    for (std::byte*& place : slots->of) place = take(whole);
  for (std::byte*& place : contributed_) place = take(whole);
  if (widens)
    for (std::byte*& place : widened_) place = take(partial);
}

void RingSum::run(const Collective& call, const RingNodes& nodes, std::size_t piece_bytes) {
  call_ = &call;
  nodes_ = &nodes;
  dtype_ = reduces_all() ? call.data.dtype() : call.result.dtype();
  node_ = node_of(call.self);
  const int place = call.self - nodes.begin(node_);
  own_lane_ = place < nodes.lanes() ? place : -1;
  find_contributors();
  cut(piece_bytes);
  make_room();
  start_ = call.accumulate ? nodes.size() : 0;
  const auto in_lane =
      (static_cast<std::int64_t>(pieces_.size()) + nodes.lanes() - 1) / nodes.lanes();
  const std::int64_t steps = in_lane + start_ + last_node_ + nodes.size() + 1;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (int lane = 0; lane < nodes.lanes(); ++lane) add_messages(lane, step);
    messages_.move();
    sum(step);
  }
}

// Both ends of a pair add what goes between them in this order.
void RingSum::add_messages(int lane, std::int64_t step) {
  if (call_->accumulate) add_earlier_result(lane, step);
  add_contributions(lane, step);
  if (leads(lane)) add_partial_sums(lane, step);
  add_results(lane, step);
}

// The result so far must be first in the sum. It goes from its owner to the leader of its node, and
// from node h to the next one at the step (N - h) before its piece enters the chain.
void RingSum::add_earlier_result(int lane, std::int64_t step) {
  const int size = nodes_->size();
  const Piece* local = piece(lane, step - start_ + nodes_->distance(node_, 0) + 1);
  if (local != nullptr && node_of(local->owner) == node_) {
    const int leading = nodes_->leader(node_, lane);
    if (local->owner == call_->self && !leads(lane))
      messages_.send(world(leading), owned(*local), bytes(*local));
    if (local->owner != call_->self && leads(lane))
      messages_.receive(world(local->owner), earlier_.at(step), bytes(*local));
  }
  if (!leads(lane)) return;
  const auto passes = [&](const Piece* some, int node) {
    return some != nullptr && node > 0 && node_of(some->owner) > 0 && node_of(some->owner) <= node;
  };
  const Piece* out = piece(lane, step - start_ + size - node_);
  if (passes(out, node_)) {
    messages_.send(leader(nodes_->next(node_), lane),
                   out->owner == call_->self ? owned(*out) : earlier_.at(step + 1), bytes(*out));
  }
  const int from = nodes_->previous(node_);
  const Piece* in = piece(lane, step - start_ + size - from);
  if (passes(in, from)) messages_.receive(leader(from, lane), earlier_.at(step), bytes(*in));
}

// The ranks of a node give the leader of the lane what they have.
void RingSum::add_contributions(int lane, std::int64_t step) {
  const Piece* now = piece(lane, step - start_ - node_);
  if (now == nullptr || node_ > last_node_) return;
  const int leading = nodes_->leader(node_, lane);
  for (int member = nodes_->begin(node_); member < nodes_->begin(node_ + 1); ++member) {
    if (member == leading || !contributes(*call_, member)) continue;
    if (member == call_->self) messages_.send(world(leading), data(*now), bytes(*now));
    if (leads(lane)) {
      const auto place = static_cast<std::size_t>(member - nodes_->begin(node_));
      messages_.receive(world(member), contributed_[place], bytes(*now));
    }
  }
}

void RingSum::add_partial_sums(int lane, std::int64_t step) {
  const int next = node_ + 1;
  const Piece* out = piece(lane, step - start_ - next);
  if (out != nullptr && next <= last_node_ && has_partial_sum(next))
    messages_.send(leader(next, lane), partial_out_, partial_bytes(*out));
  const Piece* in = piece(lane, step - start_ - node_);
  if (in != nullptr && node_ > 0 && node_ <= last_node_ && has_partial_sum(node_))
    messages_.receive(leader(node_ - 1, lane), partial_in_, partial_bytes(*in));
}

// From the last node of the chain on round the ring, and in each node to those who need it.
void RingSum::add_results(int lane, std::int64_t step) {
  const int hops = nodes_->distance(last_node_, node_);
  const Piece* has = piece(lane, step - start_ - last_node_ - 1 - hops);
  const int leading = nodes_->leader(node_, lane);
  if (has != nullptr && leads(lane) && hops < result_hops(*has)) {
    messages_.send(leader(nodes_->next(node_), lane),
                   reduces_all() ? data(*has) : results_.at(step + 1), bytes(*has));
  }
  const Piece* in = hops > 0 ? piece(lane, step - start_ - last_node_ - hops) : nullptr;
  if (in != nullptr && leads(lane) && hops - 1 < result_hops(*in)) {
    std::byte* to = reduces_all()              ? data(*in)
                    : in->owner == call_->self ? owned(*in)
                                               : results_.at(step);
    messages_.receive(leader(nodes_->previous(node_), lane), to, bytes(*in));
  }
  if (has == nullptr || hops > result_hops(*has)) return;
  if (!reduces_all() && node_of(has->owner) != node_) return;
  for (int member = nodes_->begin(node_); member < nodes_->begin(node_ + 1); ++member) {
    if (member == leading || (!reduces_all() && member != has->owner)) continue;
    if (leads(lane))
      messages_.send(world(member), reduces_all() ? data(*has) : results_.at(step + 1),
                     bytes(*has));
    if (member == call_->self)
      messages_.receive(world(leading), reduces_all() ? data(*has) : owned(*has), bytes(*has));
  }
}

/// What has come at this step, with what this node has.
void RingSum::sum(std::int64_t step) {
  const Piece* now = own_lane_ < 0 ? nullptr : piece(own_lane_, step - start_ - node_);
  if (now == nullptr || node_ > last_node_) return;
  sources_.clear();
  if (node_ == 0 && call_->accumulate) {
    // It has come at the step before.
    sources_.push_back(now->owner == call_->self ? owned(*now) : earlier_.at(step + 1));
  } else if (has_partial_sum(node_)) {
    sources_.push_back(partial_in_);
  }
  for (int member = nodes_->begin(node_); member < nodes_->begin(node_ + 1); ++member) {
    if (!contributes(*call_, member)) continue;
    const auto place = static_cast<std::size_t>(member - nodes_->begin(node_));
    sources_.push_back(member == call_->self ? data(*now) : contributed_[place]);
  }
  if (sources_.empty()) return;
  const bool is_last = node_ == last_node_;
  std::byte* result = !is_last                    ? partial_out_
                      : reduces_all()             ? data(*now)
                      : now->owner == call_->self ? owned(*now)
                                                  : results_.at(step);
  reduce(*now, result, !is_last);
}

void RingSum::reduce(const Piece& piece, std::byte* result, bool result_is_partial) {
  if (partial_dtype_ == dtype_) {
    void* results[] = {result};
    return reduce_in_order(dtype_, call_->reduce, sources_, results, piece.count);
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i] == partial_in_) continue;
    widen(sources_[i], widened_[i], piece.count);
    sources_[i] = widened_[i];
  }
  void* results[] = {result_is_partial ? result : widened_.back()};
  reduce_in_order(partial_dtype_, call_->reduce, sources_, results, piece.count);
  if (!result_is_partial) narrow(widened_.back(), result, piece.count);
}

}  // namespace atl::comm
