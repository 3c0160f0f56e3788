#pragma once

#include "atoll/ops/codes/signs.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

/// See ops/codes/signs.h.
Declined encode_signs(Run& run, const EncodeSigns& args);
Declined apply_signs(Run& run, const ApplySigns& args);
Declined zero_one_step(Run& run, const ZeroOneStep& args);
Declined add_scaled(Run& run, const Tensor& pieces, float scale, const Placed& from,
                    const Placed& to);
Declined sketch(Run& run, const Tensor& x, std::span<float> sums);

}  // namespace atl::ops::cuda
