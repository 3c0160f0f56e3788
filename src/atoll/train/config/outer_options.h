#pragma once

#include <string>
#include <vector>

#include "atoll/island/outer/algorithm.h"
#include "atoll/island/outer/fragments.h"
#include "atoll/island/outer/memory.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/parallel/layout/flat_layout.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// What `outer.*` comes to for an island: defaults that depend on how many there are, filled in.
island::OuterOptions outer_options(const OuterSettings& outer);

/// By which rule, and within which bounds, that may change while the run goes on. `parameters`: of
/// the largest fragment; 0: not known yet.
island::PolicyPlan policy_plan(const OuterSettings& outer, double parameters);

/// All that is trained, in so many fragments of whole layers.
std::vector<island::Fragment> fragments_of(const parallel::FlatLayout& layout, int num_fragments);

/// What a rank of an island holds at most beside its training: that of `num_ranks` with parts of
/// the outer state which has most.
std::vector<island::OuterMemoryPart> outer_memory_of_rank(const OuterSettings& outer,
                                                          const parallel::FlatLayout& layout,
                                                          int num_ranks);

/// That as a table for people, and the sum.
std::string describe_outer_memory(const OuterSettings& outer, const parallel::FlatLayout& layout,
                                  int num_ranks);

}  // namespace atl::train
