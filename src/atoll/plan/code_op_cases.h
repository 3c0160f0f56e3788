#pragma once

#include "atoll/plan/op_cases.h"

namespace atl::plan {

/// What ranks with GPUs do to send less (docs/compressed-data-parallel.md), on so many elements:
/// codes of 8 and 4 bits and sums of those of eight ranks, signs and the step with them, and
/// products with factors of rank 4.
std::vector<OpCase> code_op_cases(std::int64_t elements);

}  // namespace atl::plan
