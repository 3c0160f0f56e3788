#pragma once

#include "atoll/ops/fp8/args.h"
#include "atoll/ops/matmul/args.h"

namespace atl::ops::cuda {

/// matmul() by cuBLASLt, on a real GPU's stream, of dtypes that the library mixes. Declines in a
/// build without nvcc.
Declined multiply(Run& run, const MatmulArgs& args);
/// The same for matmul_fp8().
Declined multiply_fp8(Run& run, const MatmulFp8Args& args);

}  // namespace atl::ops::cuda
