#pragma once

#include "atoll/plan/op_cases.h"

namespace atl::plan {

/// What train.fp8 makes of an MLP's first layer, on the tokens of a micro-batch in bf16: how long
/// each operand is rounded, and each product beside the same in bf16.
std::vector<OpCase> fp8_op_cases(const nn::ModelConfig& config, const OpSizes& sizes,
                                 bool has_blocks);

}  // namespace atl::plan
