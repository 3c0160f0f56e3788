#include "atoll/parallel/layout/held_state.h"

#include <algorithm>

#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

// Calls fn(tensor) for the parts of a vector's pieces that lie in [begin, end), in order.
template <typename Fn>
void pieces_within(const std::vector<HeldPiece>& pieces, std::int64_t begin, std::int64_t end,
                   Fn&& fn) {
  for (const HeldPiece& piece : pieces) {
    const std::int64_t from = std::max(begin, piece.begin);
    const std::int64_t to = std::min(end, piece.begin + piece.tensor.num_elements());
    if (from < to) fn(piece.tensor.rows(from - piece.begin, to - piece.begin));
  }
}

// The bytes that one rank gives another, in an order that both know.
using Parcel = std::vector<std::byte>;

void pack(const HeldVectors& held, std::span<const ElementRange> source,
          std::span<const ElementRange> wants, Parcel& parcel) {
  for (const auto& [name, pieces] : held) {
    intersect(source, wants, [&, &pieces = pieces](std::int64_t begin, std::int64_t end) {
      pieces_within(pieces, begin, end, [&](const Tensor& part) {
        const HostRead read(part);
        parcel.insert(parcel.end(), read.bytes().begin(), read.bytes().end());
      });
    });
  }
}

// Puts a parcel where it belongs; with no data, only counts its bytes.
std::size_t unpack(const HeldVectors& wanted, std::span<const ElementRange> source,
                   std::span<const ElementRange> wants, const std::byte* data) {
  std::size_t at = 0;
  for (const auto& [name, pieces] : wanted) {
    intersect(source, wants, [&, &pieces = pieces](std::int64_t begin, std::int64_t end) {
      pieces_within(pieces, begin, end, [&](const Tensor& part) {
        if (data != nullptr) {
          write_on_host<std::byte>(part,
                                   [&](auto to) { std::copy_n(data + at, to.size(), to.data()); });
        }
        at += part.bytes();
      });
    });
  }
  return at;
}

Tensor bytes_of(Parcel& parcel) {
  return {parcel.data(), {Dtype::kU8, {static_cast<std::int64_t>(parcel.size())}}};
}

}  // namespace

HeldCopy::HeldCopy(const HeldVectors& held) {
  for (const auto& [name, pieces] : held) {
    for (const HeldPiece& piece : pieces) {
      const HostRead read(piece.tensor);
      memory_.emplace_back(read.bytes().begin(), read.bytes().end());
      vectors_[name].push_back({piece.begin, Tensor(memory_.back().data(), piece.tensor.spec())});
    }
  }
}

HeldVectors held_vectors(const optim::Optimizer& optimizer,
                         std::span<const optim::ParamRange> ranges, const Tensor& values) {
  HeldVectors held;
  for (const optim::StateTensor& piece : optimizer.state()) {
    held[piece.name].push_back({piece.begin, piece.tensor});
  }
  for (auto& [name, pieces] : held) {
    std::sort(pieces.begin(), pieces.end(),
              [](const HeldPiece& a, const HeldPiece& b) { return a.begin < b.begin; });
  }
  for (const optim::ParamRange& range : ranges) {
    held["values"].push_back(
        {range.begin, values.rows(range.in_values(), range.in_values() + range.count)});
  }
  return held;
}

std::vector<ElementRange> element_ranges(const FlatLayout& layout, int r) {
  std::vector<ElementRange> ranges;
  for (const Bucket& bucket : layout.buckets()) {
    const std::int64_t begin = bucket.begin + bucket.parts[static_cast<std::size_t>(r)];
    if (bucket.part_size(r) > 0) ranges.push_back({begin, begin + bucket.part_size(r)});
  }
  return ranges;
}

void restore(const HeldVectors& held, const HeldVectors& wanted) {
  for (const auto& [name, pieces] : held) {
    const auto at = wanted.find(name);
    if (at == wanted.end()) continue;
    for (const HeldPiece& from : pieces) {
      for (const HeldPiece& to : at->second) {
        const std::int64_t begin = std::max(from.begin, to.begin);
        const std::int64_t end =
            std::min(from.begin + from.tensor.num_elements(), to.begin + to.tensor.num_elements());
        if (begin >= end) continue;
        const Tensor source = from.tensor.rows(begin - from.begin, end - from.begin);
        copy_now(source, to.tensor.rows(begin - to.begin, end - to.begin));
      }
    }
  }
}

void redistribute(comm::Group& group, std::span<const HeldBy> sources,
                  std::span<const std::vector<ElementRange>> wants, const HeldVectors& held,
                  const HeldVectors& wanted) {
  const auto me = static_cast<std::size_t>(group.rank());
  std::vector<Parcel> outgoing, incoming;
  std::vector<comm::Piece> sends, receives;
  // Moving a vector does not move what a Tensor of its elements points to.
  outgoing.reserve(sources.size() * wants.size());
  incoming.reserve(sources.size());
  for (const HeldBy& source : sources) {
    if (source.rank == group.rank()) {
      for (std::size_t to = 0; to < wants.size(); ++to) {
        pack(held, source.ranges, wants[to], outgoing.emplace_back());
        if (outgoing.back().empty()) continue;
        sends.push_back({static_cast<int>(to), bytes_of(outgoing.back())});
      }
    }
    const std::size_t bytes = unpack(wanted, source.ranges, wants[me], nullptr);
    incoming.emplace_back(bytes);
    if (bytes > 0) receives.push_back({source.rank, bytes_of(incoming.back())});
  }
  group.exchange(sends, receives);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    unpack(wanted, sources[i].ranges, wants[me], incoming[i].data());
  }
}

}  // namespace atl::parallel
