#include "atoll/comm/threads/transport.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "atoll/comm/collectives/alone.h"
#include "atoll/comm/collectives/call_check.h"
#include "atoll/comm/collectives/reduce.h"
#include "atoll/comm/world.h"

namespace atl::comm {

namespace {

using Parts = std::vector<std::int64_t>;

constexpr std::int64_t kCacheLine = 64;

std::size_t bytes_of(Dtype dtype, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * dtype_size(dtype);
}

std::byte* at(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) + bytes_of(tensor.dtype(), element);
}

std::int64_t part_begin(const Parts& parts, int member) {
  return parts[static_cast<std::size_t>(member)];
}

std::int64_t part_size(const Parts& parts, int member) {
  return part_begin(parts, member + 1) - part_begin(parts, member);
}

void copy(const std::byte* from, std::byte* to, std::int64_t elements, Dtype dtype) {
  if (elements == 0 || from == to) return;
  std::memcpy(to, from, bytes_of(dtype, elements));
}

}  // namespace

bool ThreadsTransport::run(const Collective& collective) {
  try {
    endpoint_.enter(collective);
    if (collective.op == Op::kExchange) {
      exchange_tensors(collective);
    } else {
      carry_out(collective);
    }
  } catch (const std::exception& error) {
    endpoint_.give_up(fmt::format("{}: {}", collective.to_string(), error.what()));
    throw;
  }
  endpoint_.leave();
  return true;
}

void ThreadsTransport::exchange(std::span<const Outgoing> outgoing,
                                std::span<const Incoming> incoming) {
  try {
    exchange_.clear();
    for (const Outgoing& piece : outgoing) exchange_.send(piece.to, piece.data, piece.bytes);
    for (const Incoming& piece : incoming) exchange_.receive(piece.from, piece.data, piece.bytes);
    exchange_.move();
  } catch (const std::exception& error) {
    endpoint_.give_up(error.what());
    throw;
  }
}

std::unique_ptr<Transport> ThreadsTransport::open_channel(int number,
                                                          std::span<const int> members) {
  return std::make_unique<ThreadsTransport>(endpoint_.channel().open(number, members), rank());
}

void ThreadsTransport::abort(const std::string& why) noexcept {
  endpoint_.channel().abort(endpoint_.rank(), why);
}

void ThreadsTransport::exchange_tensors(const Collective& collective) {
  copy_own_pieces(collective);
  const auto world = [&](const Piece& piece) {
    return collective.members[static_cast<std::size_t>(piece.peer)];
  };
  exchange_.clear();
  for (const Piece& piece : collective.sends) {
    const Tensor& tensor = piece.tensor;
    if (piece.peer == collective.self) continue;
    exchange_.send(world(piece), tensor.raw(), tensor.bytes(), tensor.spec());
  }
  for (const Piece& piece : collective.receives) {
    const Tensor& tensor = piece.tensor;
    if (piece.peer == collective.self) continue;
    exchange_.receive(world(piece), tensor.raw(), tensor.bytes(), tensor.spec());
  }
  exchange_.move();
}

void ThreadsTransport::carry_out(const Collective& collective) {
  endpoint_.enter_barrier(collective);
  if (collective.op != Op::kBarrier) {
    const Endpoint::MemoryAccess access(endpoint_);
    work(collective);
  }
  endpoint_.leave_barrier(collective);
}

std::byte* ThreadsTransport::data_of(const Collective& collective, int member) const {
  if (member == collective.self) return static_cast<std::byte*>(collective.data.raw());
  return endpoint_.of(collective, member).data;
}

void ThreadsTransport::work(const Collective& collective) {
  switch (collective.op) {
    case Op::kAllReduce:
      return all_reduce(collective);
    case Op::kReduceScatter:
      return reduce_scatter(collective);
    case Op::kAllGather:
      return all_gather(collective);
    case Op::kBroadcast:
      return broadcast(collective);
    case Op::kAllToAll:
      return all_to_all(collective);
    default:
      return;
  }
}

// Each rank sums its part and writes it to all ranks at once: the lines are still in the cache from
// reading them. So this moves fewer bytes than reduce_scatter and all_gather, with one barrier
// less.
void ThreadsTransport::all_reduce(const Collective& collective) {
  const Tensor& data = collective.data;
  const std::int64_t n = data.num_elements();
  const int size = collective.size();
  const auto line = kCacheLine / static_cast<std::int64_t>(dtype_size(data.dtype()));
  const std::int64_t begin = even_begin(n, size, line, collective.self);
  const std::int64_t end = even_begin(n, size, line, collective.self + 1);
  sources_.clear();
  results_.clear();
  for (int member = 0; member < size; ++member) {
    results_.push_back(data_of(collective, member) + bytes_of(data.dtype(), begin));
    sources_.push_back(results_.back());
  }
  reduce_in_order(data.dtype(), collective.reduce, sources_, results_, end - begin);
}

void ThreadsTransport::reduce_scatter(const Collective& collective) {
  const std::int64_t begin = part_begin(collective.parts, collective.self);
  const std::size_t offset = bytes_of(collective.result.dtype(), begin);
  sources_.clear();
  void* result = collective.result.raw();
  if (collective.accumulate) sources_.push_back(result);
  for (int member = 0; member < collective.size(); ++member) {
    if (contributes(collective, member)) sources_.push_back(data_of(collective, member) + offset);
  }
  reduce_in_order(collective.result.dtype(), collective.reduce, sources_, {&result, 1},
                  part_size(collective.parts, collective.self));
}

void ThreadsTransport::all_gather(const Collective& collective) {
  // Each rank begins with its neighbour, so that not all read the same memory at once.
  for (int step = 1; step < collective.size(); ++step) {
    const int member = (collective.self + step) % collective.size();
    const std::int64_t begin = part_begin(collective.parts, member);
    copy(data_of(collective, member) + bytes_of(collective.data.dtype(), begin),
         at(collective.data, begin), part_size(collective.parts, member), collective.data.dtype());
  }
}

void ThreadsTransport::broadcast(const Collective& collective) {
  if (collective.self == collective.root) return;
  copy(data_of(collective, collective.root), at(collective.data, 0), collective.data.num_elements(),
       collective.data.dtype());
}

void ThreadsTransport::all_to_all(const Collective& collective) {
  for (int step = 0; step < collective.size(); ++step) {
    const int member = (collective.self + step) % collective.size();
    const Collective& theirs =
        member == collective.self ? collective : *endpoint_.of(collective, member).call;
    const std::int64_t comes = part_size(theirs.parts, collective.self);
    const std::int64_t expected = part_size(collective.result_parts, member);
    if (comes != expected) {
      const int rank = collective.members[static_cast<std::size_t>(member)];
      throw PeerError(rank, fmt::format("rank {} sends {} elements where rank {} expects {}, in {}",
                                        rank, comes, this->rank(), expected, theirs.to_string()));
    }
    copy(at(theirs.data, part_begin(theirs.parts, collective.self)),
         at(collective.result, part_begin(collective.result_parts, member)), comes,
         collective.data.dtype());
  }
}

}  // namespace atl::comm
