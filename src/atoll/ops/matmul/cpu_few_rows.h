#pragma once

#include "atoll/ops/matmul/args.h"

namespace atl::ops::cpu {

/// Serves kNT with at most 8 rows of f32 or bf16: generation, where a product costs what it costs
/// to read the weights once. Each weight row is read once for all rows of a.
Declined matmul_few_rows(Run& run, const MatmulArgs& args);

}  // namespace atl::ops::cpu
