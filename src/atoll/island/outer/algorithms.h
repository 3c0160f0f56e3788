#pragma once

// One function for each file with an algorithm; make_outer_algorithm() calls them.

#include <memory>

#include "atoll/island/outer/algorithm.h"

namespace atl::island {

/// DiLoCo (arXiv 2311.08105): all parameters every H inner steps, and the island waits.
std::unique_ptr<OuterAlgorithm> make_diloco(const OuterOptions& options);

/// Streaming DiLoCo (arXiv 2501.18512): P fragments in turn, exchanged beside the next inner steps.
std::unique_ptr<OuterAlgorithm> make_streaming(const OuterOptions& options);

/// Eager updates (arXiv 2502.12996): the exchange has the whole next round.
std::unique_ptr<OuterAlgorithm> make_eager(const OuterOptions& options,
                                           const OuterOptimizer& optimizer);

/// Asynchronous local SGD (arXiv 2401.09135): islands come one by one, and none waits.
std::unique_ptr<OuterAlgorithm> make_async(const OuterOptions& options);
std::unique_ptr<OuterAlgorithm> make_gossip(const OuterOptions& options);

}  // namespace atl::island
