#include "atoll/comm/collectives/collectives.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/comm/collectives/alone.h"
#include "atoll/comm/collectives/call_check.h"
#include "atoll/comm/collectives/reduce.h"

namespace atl::comm {

namespace {

constexpr std::size_t kSmall = std::size_t{64}
                               << 10;  // bytes below which latency counts more than bandwidth
constexpr std::size_t kScratch = std::size_t{16} << 20;  // of a reduce_scatter, at most

std::int64_t part_begin(const std::vector<std::int64_t>& parts, int member) {
  return parts[static_cast<std::size_t>(member)];
}

std::int64_t part_size(const std::vector<std::int64_t>& parts, int member) {
  return part_begin(parts, member + 1) - part_begin(parts, member);
}

/// Part `member` of a tensor.
struct Part {
  std::byte* data = nullptr;
  std::size_t size = 0;
};
Part part_of(const Tensor& tensor, const std::vector<std::int64_t>& parts, int member) {
  const std::size_t element = dtype_size(tensor.dtype());
  return {static_cast<std::byte*>(tensor.raw()) +
              static_cast<std::size_t>(part_begin(parts, member)) * element,
          static_cast<std::size_t>(part_size(parts, member)) * element};
}

}  // namespace

void MessageBatch::move() {
  if (!outgoing_.empty() || !incoming_.empty()) transport_->exchange(outgoing_, incoming_);
  clear();
}

void MessageBatch::clear() {
  outgoing_.clear();
  incoming_.clear();
}

MessageCollectives::MessageCollectives(Transport* transport)
    : transport_(transport), messages_(transport), summing_([this] { sum(); }) {}

void MessageCollectives::compare() {
  const auto count = static_cast<std::size_t>(size());
  mine_.assign(count, make_header(*call_));
  theirs_.resize(count);
  for (int member = 0; member < size(); ++member) {
    if (member == self()) continue;
    const auto i = static_cast<std::size_t>(member);
    if (call_->op == Op::kAllToAll) {
      mine_[i].to_peer = part_size(call_->parts, member);
      mine_[i].from_peer = part_size(call_->result_parts, member);
    }
    messages_.send(world(member), &mine_[i], sizeof(CallHeader));
    messages_.receive(world(member), &theirs_[i], sizeof(CallHeader));
  }
  messages_.move();
  for (int member = 0; member < size(); ++member) {
    if (member == self()) continue;
    const auto i = static_cast<std::size_t>(member);
    compare_calls(mine_[i], theirs_[i], world(member));
  }
}

void MessageCollectives::reduce_scatter(const Parts& parts, const Tensor& result) {
  sum_ = {&parts, result, contributes(*call_, self())};
  contributors_.clear();
  std::int64_t largest = 0;
  for (int member = 0; member < size(); ++member) {
    if (contributes(*call_, member)) contributors_.push_back(member);
    largest = std::max(largest, part_size(parts, member));
  }
  const auto others = static_cast<std::size_t>(size() - 1);
  const std::size_t element = dtype_size(result.dtype());
  const std::size_t bytes =
      std::min(std::max<std::size_t>(transport_->piece_bytes(), 64), kScratch / (2 * others));
  sum_.chunk = std::clamp<std::int64_t>(largest, 1, static_cast<std::int64_t>(bytes / element));
  sum_.rounds = (largest + sum_.chunk - 1) / sum_.chunk;
  sum_.room = static_cast<std::size_t>(sum_.chunk) * element;
  if (part_size(parts, self()) != 0) {
    scratch(std::min<std::size_t>(2, static_cast<std::size_t>(sum_.rounds)) * contributors_.size() *
            sum_.room);
  }
  try {
    run_rounds();
  } catch (...) {
    try {
      summing_.wait();  // it reads and writes what the caller may free
    } catch (...) {     // the first error counts
    }
    throw;
  }
}

// The next round moves while the last is summed.
void MessageCollectives::run_rounds() {
  for (std::int64_t round = 0; round < sum_.rounds; ++round) {
    move(round);
    summing_.wait();
    if (elements(self(), round) == 0) continue;
    sum_.round = round;
    if (round + 1 == sum_.rounds) {
      sum();
    } else {
      summing_.start();
    }
  }
  summing_.wait();
}

std::int64_t MessageCollectives::elements(int owner, std::int64_t round) const {
  return std::clamp<std::int64_t>(part_size(*sum_.parts, owner) - round * sum_.chunk, 0,
                                  sum_.chunk);
}

std::byte* MessageCollectives::at(const Tensor& tensor, std::int64_t element) const {
  return static_cast<std::byte*>(tensor.raw()) +
         static_cast<std::size_t>(element) * dtype_size(sum_.result.dtype());
}

std::byte* MessageCollectives::room(std::size_t contributor, std::int64_t round) const {
  return scratch_.get() +
         (static_cast<std::size_t>(round % 2) * contributors_.size() + contributor) * sum_.room;
}

// The scratch only grows: after the first step no call allocates.
std::byte* MessageCollectives::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset(new std::byte[bytes]);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

void MessageCollectives::move(std::int64_t round) {
  const std::size_t element = dtype_size(sum_.result.dtype());
  const auto bytes = [&](int owner) {
    return static_cast<std::size_t>(elements(owner, round)) * element;
  };
  const std::int64_t offset = round * sum_.chunk;
  for (int owner = 0; sum_.sends && owner < size(); ++owner) {
    if (owner == self() || elements(owner, round) == 0) continue;
    messages_.send(world(owner), at(call_->data, part_begin(*sum_.parts, owner) + offset),
                   bytes(owner));
  }
  for (std::size_t i = 0; i < contributors_.size(); ++i) {
    if (contributors_[i] == self() || elements(self(), round) == 0) continue;
    messages_.receive(world(contributors_[i]), room(i, round), bytes(self()));
  }
  messages_.move();
}

void MessageCollectives::sum() {
  const std::int64_t offset = sum_.round * sum_.chunk;
  sources_.clear();
  void* result = at(sum_.result, offset);
  if (call_->accumulate) sources_.push_back(result);
  for (std::size_t i = 0; i < contributors_.size(); ++i) {
    sources_.push_back(contributors_[i] == self()
                           ? at(call_->data, part_begin(*sum_.parts, self()) + offset)
                           : room(i, sum_.round));
  }
  reduce_in_order(sum_.result.dtype(), call_->reduce, sources_, {&result, 1},
                  elements(self(), sum_.round));
}

void MessageCollectives::cut_evenly() {
  const std::int64_t n = call_->data.num_elements();
  parts_.clear();
  for (int member = 0; member <= size(); ++member)
    parts_.push_back(even_begin(n, size(), 1, member));
}

/// Sends this rank's part to all ranks that lack it: to all others, or to all but `root`.
void MessageCollectives::all_gather(const Parts& parts, int root) {
  const Tensor& data = call_->data;
  const Part own = part_of(data, parts, self());
  // Each rank begins with its neighbour, so that not all send to rank 0 first.
  for (int step = 1; step < size(); ++step) {
    const int to = (self() + step) % size();
    const int from = (self() - step + size()) % size();
    const Part theirs = part_of(data, parts, from);
    if (to != root) messages_.send(world(to), own.data, own.size);
    if (self() != root) messages_.receive(world(from), theirs.data, theirs.size);
  }
  messages_.move();
}

/// Each rank sends everything to all and sums everything: one step.
void MessageCollectives::all_reduce_small() {
  const Tensor& data = call_->data;
  const std::size_t bytes = data.bytes();
  if (bytes == 0) return;
  std::byte* theirs = scratch(static_cast<std::size_t>(size()) * bytes);
  sources_.clear();
  for (int member = 0; member < size(); ++member) {
    std::byte* room = theirs + static_cast<std::size_t>(member) * bytes;
    sources_.push_back(member == self() ? data.raw() : room);
    if (member == self()) continue;
    messages_.send(world(member), data.raw(), bytes);
    messages_.receive(world(member), room, bytes);
  }
  messages_.move();
  void* result = data.raw();
  reduce_in_order(data.dtype(), call_->reduce, sources_, {&result, 1}, data.num_elements());
}

void MessageCollectives::all_reduce() {
  const Tensor& data = call_->data;
  if (data.bytes() * static_cast<std::size_t>(size()) <= kSmall) return all_reduce_small();
  cut_evenly();
  const Part own = part_of(data, parts_, self());
  reduce_scatter(parts_, Tensor(own.data, {data.dtype(), {part_size(parts_, self())}}));
  all_gather(parts_);
}

void MessageCollectives::broadcast_tree() {
  const Tensor& data = call_->data;
  const int root = call_->root;
  const int place = (self() - root + size()) % size();
  for (int have = 1; have < size(); have *= 2) {  // the first `have` places have it
    const int peer = place < have ? place + have : place - have;
    const int member = world((peer + root) % size());
    if (place < have && peer < size()) messages_.send(member, data.raw(), data.bytes());
    if (place >= have && place < 2 * have) messages_.receive(member, data.raw(), data.bytes());
    messages_.move();
  }
}

void MessageCollectives::broadcast_parts() {
  const Tensor& data = call_->data;
  const int root = call_->root;
  cut_evenly();
  if (self() == root) {
    for (int member = 0; member < size(); ++member) {
      const Part part = part_of(data, parts_, member);
      if (member != root) messages_.send(world(member), part.data, part.size);
    }
  } else {
    const Part part = part_of(data, parts_, self());
    messages_.receive(world(root), part.data, part.size);
  }
  messages_.move();
  all_gather(parts_, root);
}

void MessageCollectives::broadcast() {
  if (size() == 2 || call_->data.bytes() <= kSmall) return broadcast_tree();
  broadcast_parts();
}

void MessageCollectives::all_to_all() {
  const Part kept = part_of(call_->data, call_->parts, self());
  const Part room = part_of(call_->result, call_->result_parts, self());
  for (int step = 1; step < size(); ++step) {
    const int to = (self() + step) % size();
    const int from = (self() - step + size()) % size();
    const Part out = part_of(call_->data, call_->parts, to);
    const Part in = part_of(call_->result, call_->result_parts, from);
    messages_.send(world(to), out.data, out.size);
    messages_.receive(world(from), in.data, in.size);
  }
  messages_.move();
  std::copy_n(kept.data, kept.size, room.data);
}

// Headers are not compared: a peer may move the pieces of one exchange in several of its own, so
// there is no call to compare with. The transport compares sizes.
void MessageCollectives::exchange() {
  copy_own_pieces(*call_);
  for (const Piece& piece : call_->sends) {
    if (piece.peer == self()) continue;
    messages_.send(world(piece.peer), piece.tensor.raw(), piece.tensor.bytes());
  }
  for (const Piece& piece : call_->receives) {
    if (piece.peer == self()) continue;
    messages_.receive(world(piece.peer), piece.tensor.raw(), piece.tensor.bytes());
  }
  messages_.move();
}

void MessageCollectives::run(const Collective& collective) {
  call_ = &collective;
  messages_.clear();
  if (collective.op == Op::kExchange) return exchange();
  compare();
  switch (collective.op) {
    case Op::kAllReduce:
      return all_reduce();
    case Op::kReduceScatter:
      return reduce_scatter(collective.parts, collective.result);
    case Op::kAllGather:
      return all_gather(collective.parts);
    case Op::kBroadcast:
      return broadcast();
    case Op::kAllToAll:
      return all_to_all();
    default:
      return;  // a barrier is the comparison
  }
}

}  // namespace atl::comm
