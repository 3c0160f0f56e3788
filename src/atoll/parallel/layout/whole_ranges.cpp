#include "atoll/parallel/layout/whole_ranges.h"

#include <algorithm>
#include <deque>

#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

// fn(begin, end, place) for what `parts` have of `ranges`, in order; place: in the packed ranges.
template <typename Fn>
void for_packed(std::span<const ElementRange> parts, std::span<const ElementRange> ranges, Fn fn) {
  std::int64_t place = 0;
  for (const ElementRange& range : ranges) {
    intersect(parts, std::span(&range, 1), [&](std::int64_t begin, std::int64_t end) {
      fn(begin, end, place + begin - range.begin);
    });
    place += range.size();
  }
}

// The first of the pieces, which are ascending, that ends after `at`.
const HeldPiece* first_after(std::span<const HeldPiece> held, std::int64_t at) {
  const auto first =
      std::upper_bound(held.begin(), held.end(), at, [](std::int64_t at, const HeldPiece& piece) {
        return at < piece.begin + piece.tensor.num_elements();
      });
  return held.data() + (first - held.begin());
}

void copy_held(std::span<const HeldPiece> held, std::int64_t begin, std::int64_t end,
               const Tensor& to) {
  std::int64_t copied = 0;
  for (const HeldPiece* at = first_after(held, begin); at != held.data() + held.size(); ++at) {
    const HeldPiece& piece = *at;
    if (piece.begin >= end) break;
    const std::int64_t from = std::max(begin, piece.begin);
    const std::int64_t until = std::min(end, piece.begin + piece.tensor.num_elements());
    const Tensor part = piece.tensor.rows(from - piece.begin, until - piece.begin);
    copy_now(part, to.rows(from - begin, until - begin));
    copied += until - from;
  }
  ATOLL_CHECK_EQ(copied, end - begin);
}

// Elements [begin, end) as one tensor: where they lie, or in a copy.
Tensor held_elements(std::span<const HeldPiece> held, std::int64_t begin, std::int64_t end,
                     std::deque<std::vector<std::byte>>& copies) {
  ATOLL_CHECK(!held.empty(), "elements {} to {} are not held", begin, end);
  const HeldPiece* first = first_after(held, begin);
  if (first != held.data() + held.size() && first->begin <= begin &&
      end <= first->begin + first->tensor.num_elements()) {
    return first->tensor.rows(begin - first->begin, end - first->begin);
  }
  const Spec spec = {held.front().tensor.dtype(), {end - begin}};
  copies.emplace_back(spec.bytes());
  const Tensor copy(copies.back().data(), spec);
  copy_held(held, begin, end, copy);
  return copy;
}

// Sends each rank what it wants of `ranges`, which the writer has in `all`; the others receive
// theirs at the same place.
void hand_out(comm::Group& group, const RangesByRank& wants, std::span<const ElementRange> ranges,
              int writer, const Tensor& all) {
  const bool writes = group.rank() == writer;
  std::vector<comm::Piece> sends, receives;
  for (int r = 0; r < static_cast<int>(wants.size()); ++r) {
    if (r == writer || (!writes && r != group.rank())) continue;
    for_packed(wants[static_cast<std::size_t>(r)], ranges,
               [&](std::int64_t begin, std::int64_t end, std::int64_t place) {
                 const Tensor part = all.rows(place, place + end - begin);
                 if (writes) {
                   sends.push_back({r, part});
                 } else {
                   receives.push_back({writer, part});
                 }
               });
  }
  if (!sends.empty() || !receives.empty()) group.exchange(sends, receives);
}

}  // namespace

std::vector<ElementRange> slice(std::span<const ElementRange> ranges, std::int64_t begin,
                                std::int64_t end) {
  std::vector<ElementRange> result;
  std::int64_t place = 0;
  for (const ElementRange& range : ranges) {
    const std::int64_t from = std::max(begin - place, std::int64_t{0});
    const std::int64_t to = std::min(end - place, range.size());
    if (from < to) result.push_back({range.begin + from, range.begin + to});
    place += range.size();
  }
  return result;
}

void read_ranges(comm::Group* group, const RangesByRank& holders, std::span<const HeldPiece> held,
                 std::span<const ElementRange> ranges, int reader, const Tensor& packed) {
  const int me = group == nullptr ? 0 : group->rank();
  std::vector<comm::Piece> sends, receives;
  std::deque<std::vector<std::byte>> copies;
  std::int64_t found = 0;
  for (int r = 0; r < static_cast<int>(holders.size()); ++r) {
    const auto& gives = holders[static_cast<std::size_t>(r)];
    for_packed(gives, ranges, [&](std::int64_t begin, std::int64_t end, std::int64_t place) {
      found += end - begin;
      if (me == reader && r == me) {
        copy_held(held, begin, end, packed.rows(place, place + end - begin));
      } else if (me == reader) {
        receives.push_back({r, packed.rows(place, place + end - begin)});
      } else if (r == me) {
        sends.push_back({reader, held_elements(held, begin, end, copies)});
      }
    });
  }
  ATOLL_CHECK_EQ(found, num_elements(ranges));
  if (!sends.empty() || !receives.empty()) group->exchange(sends, receives);
}

void write_ranges(comm::Group* group, const RangesByRank& wants,
                  std::span<const ElementRange> ranges, int writer, std::span<float> packed,
                  const TakeRange& take) {
  const int me = group == nullptr ? 0 : group->rank();
  const std::int64_t count = num_elements(ranges);
  std::vector<float> memory;
  if (me != writer) memory.resize(static_cast<std::size_t>(std::min(count, kWriteElements)));
  for (std::int64_t at = 0; at < count; at += kWriteElements) {
    const std::int64_t size = std::min(kWriteElements, count - at);
    const std::vector<ElementRange> now = slice(ranges, at, at + size);
    const Tensor all(me == writer ? packed.data() + at : memory.data(), {Dtype::kF32, {size}});
    const std::vector<ElementRange>& mine =
        wants.empty() ? now : wants[static_cast<std::size_t>(me)];
    if (wants.empty()) {
      if (group != nullptr) group->broadcast(all, writer);
    } else {
      hand_out(*group, wants, now, writer, all);
    }
    for_packed(mine, now, [&](std::int64_t begin, std::int64_t end, std::int64_t place) {
      take(begin, all.rows(place, place + end - begin));
    });
  }
}

}  // namespace atl::parallel
