#pragma once

// Matrix products of which some operand is stored in bf16: pieces of it are widened to f32 into
// buffers of the thread's own, and the f32 kernels of matmul_dnnl multiply those.

#include "atoll/ops/matmul/args.h"

namespace atl::ops::cpu {

/// Serves any mixture of f32 and bf16 in host memory. Sums run in f32; a bf16 c is rounded once.
Declined matmul_widened(Run& run, const MatmulArgs& args);

}  // namespace atl::ops::cpu
