#pragma once

#include <string>

#include "atoll/cli/commands/simulate.h"
#include "atoll/plan/ranking.h"

namespace atl::cli {

/// What islands of this layout would do together, a line for each number of inner steps and each
/// codec: bytes that an island sends a day, and the part of its time in which it computes, from
/// simulations of a few outer steps. `link` is each island's.
std::string islands_table(const plan::Row& layout, const train::OuterSettings& outer, int islands,
                          const island::SimulatedLink& link, double parameters);

}  // namespace atl::cli
