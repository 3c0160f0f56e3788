#pragma once

#include <functional>

#include "atoll/comm/group.h"

namespace atl::plan {

/// Seconds of one call() while all ranks of `all` make it: that of the slowest rank, the least of
/// three rounds of 20 ms, or of one call where that is longer. Every rank must call it.
double time_together(comm::Group& all, const std::function<void()>& call);

/// Seconds of one call() on the first `active` ranks while the others wait, as above.
double time_some(comm::Group& all, int active, const std::function<void()>& call);

}  // namespace atl::plan
