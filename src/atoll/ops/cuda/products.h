#pragma once

#include "atoll/ops/matmul_args.h"

namespace atl::ops::cuda {

/// matmul() by cuBLASLt, on a real GPU's stream, of dtypes that the library mixes. Declines in a
/// build without nvcc.
Declined multiply(Run& run, const MatmulArgs& args);

}  // namespace atl::ops::cuda
