#pragma once

// Where the parameters of a rank that has a part of the model (its stages, its share of each
// product) lie in the flat vector of the whole model, which is the same for all layouts.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/layout/element_range.h"
#include "atoll/parallel/layout/flat_layout.h"
#include "atoll/parallel/layout/held_state.h"
#include "atoll/parallel/layout/whole_ranges.h"

namespace atl::parallel {

/// Elements of a rank's flat vector that lie together in that of the whole model.
struct FlatRun {
  std::int64_t begin = 0;  ///< in the whole model's flat vector
  std::int64_t local = 0;  ///< in this rank's
  std::int64_t count = 0;
  /// Of ranks that hold the same elements, this is the one that gives them.
  bool counts = true;
};

/// Whether this rank, and no other with other stages, gives a parameter that it holds.
using CountsParam = std::function<bool(const nn::Param& param)>;

/// All trained elements of a rank's layout, in its order. The whole model's has a parameter of each
/// name. Padding is in none.
std::vector<FlatRun> runs_in_whole(const FlatLayout& layout, const FlatLayout& whole,
                                   const CountsParam& counts);

/// Pieces of a rank's flat vector as pieces of the whole model's, ascending.
std::vector<HeldPiece> pieces_in_whole(std::span<const FlatRun> runs,
                                       std::span<const optim::StateTensor> pieces);

/// Ranges of a rank's flat vector as ranges of the whole model's, ascending; `only_counted`: of the
/// runs that this rank gives.
std::vector<ElementRange> ranges_in_whole(std::span<const FlatRun> runs,
                                          std::span<const ElementRange> ranges, bool only_counted);

/// A rank's ranges, cut where its runs end, with ParamRange::draw_begin: stochastic rounding then
/// draws by an element's place in the whole model. A matrix whose rows do not lie together there is
/// none any more.
std::vector<optim::ParamRange> drawn_by_whole(std::span<const FlatRun> runs,
                                              std::span<const optim::ParamRange> ranges);

/// Tells all ranks of the group what each one has. Every rank must call it.
RangesByRank gather_ranges(comm::Group& group, std::span<const ElementRange> mine);

}  // namespace atl::parallel
