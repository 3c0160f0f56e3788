#pragma once

#include <string>
#include <vector>

#include "atoll/island/outer/algorithm.h"
#include "atoll/island/outer/fragments.h"
#include "atoll/parallel/flat_layout.h"
#include "atoll/train/config.h"

namespace atl::train {

/// What `outer.*` comes to for an island: defaults that depend on how many there are, filled in.
island::OuterOptions outer_options(const OuterSettings& outer);

/// All that is trained, in so many fragments of whole layers.
std::vector<island::Fragment> fragments_of(const parallel::FlatLayout& layout, int num_fragments);

/// A table for people of what the lead rank of an island holds beside its training, and the sum.
std::string describe_outer_memory(const OuterSettings& outer, const parallel::FlatLayout& layout);

}  // namespace atl::train
