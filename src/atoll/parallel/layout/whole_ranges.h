#pragma once

// Ranges of a flat vector that ranks share, whole on one of them: read from the ranks that hold
// them, and written to the ranks that want them. Packed, the ranges lie one after the other.

#include <functional>
#include <span>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/parallel/layout/element_range.h"
#include "atoll/parallel/layout/held_state.h"

namespace atl::parallel {

/// Ranges by rank of a group, each rank's ascending.
using RangesByRank = std::vector<std::vector<ElementRange>>;

/// Fills `packed` with `ranges` (ascending) on rank `reader`; on other ranks it is not looked at.
/// Rank r gives what it has of holders[r], which together have each element of `ranges` once;
/// ranks beyond the end give nothing. `held` is what this rank has, ascending: the elements of
/// its holders[r], maybe in several pieces. Every byte moves once, straight to where it stays. All
/// ranks that give anything must call it, and the reader. `group` null: this rank is alone.
void read_ranges(comm::Group* group, const RangesByRank& holders, std::span<const HeldPiece> held,
                 std::span<const ElementRange> ranges, int reader, const Tensor& packed);

/// Is given elements of the flat vector from `begin` on: f32, valid until it returns.
using TakeRange = std::function<void(std::int64_t begin, const Tensor& part)>;

/// The other way: rank `writer` has `packed`, and each rank takes what it wants of `ranges`:
/// wants[r], or all of it where `wants` is empty. Other ranks than the writer never hold more than
/// kWriteElements of it. Every rank of the group must call it; null: this rank is alone.
void write_ranges(comm::Group* group, const RangesByRank& wants,
                  std::span<const ElementRange> ranges, int writer, std::span<float> packed,
                  const TakeRange& take);

/// What lies at [begin, end) of the packed ranges.
std::vector<ElementRange> slice(std::span<const ElementRange> ranges, std::int64_t begin,
                                std::int64_t end);

/// 4 MiB: large beside the cost of a message, small beside a model.
constexpr std::int64_t kWriteElements = 1 << 20;

}  // namespace atl::parallel
