#pragma once

#include "atoll/plan/op_cases.h"

namespace atl::plan {

/// Products of generation with weights in bf16 and int8 beside activations in f32: the head's, of
/// one row and of eight, and where the model has experts, those that one token chooses. Each is
/// bounded by the weights that it reads.
std::vector<OpCase> generation_op_cases(const nn::ModelConfig& config);

}  // namespace atl::plan
