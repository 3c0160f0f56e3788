#pragma once

#include <functional>
#include <map>

#include "atoll/comm/world.h"
#include "atoll/plan/figures.h"

namespace atl::plan {

/// Measures collectives among groups of every size that divides the world's, all groups at once.
/// Every rank must call it; all get the same.
std::map<int, Link> measure_links(comm::World& world);

/// The part of a reduction's time that `compute` beside it hides: see Figures::overlap. Every rank
/// must call it.
double measure_overlap(comm::World& world, const std::function<void()>& compute);

}  // namespace atl::plan
