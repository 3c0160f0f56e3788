#pragma once

#include "atoll/ops/matmul_args.h"

namespace atl::ops::cuda {

/// matmul() by cuBLASLt, on a real GPU's stream. Declines in a build without nvcc, and operands of
/// kinds that the library does not mix.
Declined multiply(Run& run, const MatmulArgs& args);

}  // namespace atl::ops::cuda
