#pragma once

#include <vector>

#include "atoll/tune/trial/history.h"

namespace atl::tune {

/// How much of the objective's variance over the space each dimension explains by itself (first
/// Sobol index), by a Gaussian process of the results; they sum to at most about 1, the rest is
/// what settings do together. Empty where fewer than four trials have shown something. Of trials
/// that came to one step: that which most came to, the later where several have equally many.
std::vector<double> importance_of(const Space& space, const History& history,
                                  const std::vector<Objective>& objectives, std::uint64_t seed);

}  // namespace atl::tune
