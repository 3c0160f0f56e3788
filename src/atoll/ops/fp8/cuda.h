#pragma once

#include "atoll/ops/fp8/args.h"

namespace atl::ops::cuda {

Declined round_to_fp8(Run& run, const RoundToFp8Args& args);
std::size_t round_to_fp8_scratch_bytes(std::int64_t elements);
/// By cuBLASLt.
Declined matmul_fp8(Run& run, const MatmulFp8Args& args);

}  // namespace atl::ops::cuda
