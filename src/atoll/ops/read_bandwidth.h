#pragma once

#include <cstddef>

#include "atoll/ops/run.h"

namespace atl::ops {

/// Bytes a second at which all of the run's threads together read `bytes` of memory from end to
/// end: the median of sweeps, of which there are enough for 0.2 s. What generation is
/// measured against; give as many bytes as the weights have, for small ones stay in the caches.
double measure_read_bandwidth(Run& run, std::size_t bytes);

}  // namespace atl::ops
