#pragma once

#include "atoll/ops/matmul_args.h"

namespace atl::ops::cuda {

/// See ops/matmul.h; f32 and bf16. A GPU's library multiplies; on the fake GPU `ref` does, behind
/// the stream, and the call is recorded.
Declined matmul(Run& run, const MatmulArgs& args);

}  // namespace atl::ops::cuda
