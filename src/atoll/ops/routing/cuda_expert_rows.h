#pragma once

#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

// Operands as in ops/routing/expert_rows.h, on the device.

/// Needs assign_rows_scratch_bytes of scratch.
Declined assign_rows(Run& run, Tensor experts, std::int64_t capacity, Tensor places, Tensor sources,
                     Tensor offsets);
std::size_t assign_rows_scratch_bytes(std::int64_t choices, std::int64_t num_experts);
Declined gather_rows(Run& run, Tensor x, Tensor sources, Tensor rows);
Declined combine_rows(Run& run, Tensor rows, Tensor places, Tensor weights, Tensor y);
Declined weigh_rows(Run& run, Tensor weights, Tensor sources, Tensor dh, Tensor h, Tensor d,
                    Tensor dweights);

/// Counts each part of ChoicePart::kChoices choices by itself: i32 (parts, num_experts).
Spec choice_counts_spec(std::int64_t choices, std::int64_t num_experts);
void count_parts(Run& run, Tensor experts, Tensor counts);

}  // namespace atl::ops::cuda
