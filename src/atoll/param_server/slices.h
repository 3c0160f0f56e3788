#pragma once

// The keys of a parameter server: stretches of the flat parameter vector, cut inside tensors.

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/optim/optimizer.h"

namespace atl::param_server {

/// Elements of a slice, at most: 1 MiB of f32, which fits into one frame with all its state.
inline constexpr std::int64_t kMaxSliceElements = std::int64_t{1} << 18;
/// A model has at least so many slices if it has the elements: so servers are even within 5%.
inline constexpr std::int64_t kMinSlices = 64;

/// A stretch of the flat vector that is pulled, pushed, copied and moved at once.
struct Slice {
  std::int64_t begin = 0;  ///< elements of the flat vector
  std::int64_t count = 0;
  /// What of the layout's ranges lies here; value_begin and grad_begin are places in the slice.
  std::vector<optim::ParamRange> ranges;
};

/// Cuts a flat vector of `total` elements with these ranges (FlatLayout::ranges) between blocks of
/// norms (parallel::kBlockElements), so that norms have the same bits however it is cut.
/// `slice_elements`: about how many each has; 0: so that there are kMinSlices, none too large.
std::vector<Slice> cut_into_slices(std::span<const optim::ParamRange> ranges, std::int64_t total,
                                   std::int64_t slice_elements = 0);

}  // namespace atl::param_server
