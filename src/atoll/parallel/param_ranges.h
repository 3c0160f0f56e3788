#pragma once

#include <cstdint>
#include <vector>

#include "atoll/nn/param.h"
#include "atoll/optim/optimizer.h"

namespace atl::parallel {

/// Appends the ranges of one parameter that begins at `begin` in the flat vector and has `count`
/// elements there, padding included. A hidden weight is a matrix for each of its file tensors: what
/// a Hugging Face model keeps apart is fused for our speed, and one update rule sees them apart
/// too. Embeddings, heads, positions and vectors are no matrices.
void append_ranges(const nn::Param& param, std::int64_t begin, std::int64_t count,
                   std::vector<optim::ParamRange>& ranges);

}  // namespace atl::parallel
