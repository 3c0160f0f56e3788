#pragma once

#include "atoll/ops/cross_entropy_args.h"

namespace atl::ops::cuda {

/// See ops/cross_entropy.h. Logits have the dtype of x; a chunk has as many rows as fit into the
/// scratch, so that the weight's gradient is read and written seldom.
Declined cross_entropy(Run& run, const CrossEntropyArgs& args);

}  // namespace atl::ops::cuda
