#pragma once

// Matrix products of bf16 operands by oneDNN, on CPUs that multiply bf16 themselves (AVX-512 BF16,
// AMX): operands are read as they are stored, nothing is widened. Cut as matmul_dnnl.h says, so
// that the number of threads changes no bit.

#include "atoll/ops/matmul/args.h"

namespace atl::ops::cpu {

/// Serves a and b in bf16 and c in bf16 or f32, in host memory, where bf16_arithmetic() says so.
/// Sums run in f32; a bf16 c is rounded once.
Declined matmul_bf16(Run& run, const MatmulArgs& args);

/// The same whatever bf16_arithmetic() says. The library must support bf16 on this CPU:
/// library_has_bf16().
Declined multiply_bf16(Run& run, const MatmulArgs& args);

/// Whether the library multiplies bf16 on this CPU at all, however slowly.
bool library_has_bf16();

}  // namespace atl::ops::cpu
