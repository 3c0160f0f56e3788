#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/nn/param.h"
#include "atoll/optim/matrix_parts.h"
#include "atoll/optim/optimizer.h"

namespace atl::parallel {

/// Appends the ranges of one parameter that begins at `begin` in the flat vector and has `count`
/// elements there, padding included. A hidden weight is a matrix for each of its file tensors: what
/// a Hugging Face model keeps apart is fused for our speed, and one update rule sees them apart
/// too. Embeddings, heads, positions and vectors are no matrices.
void append_ranges(const nn::Param& param, std::int64_t begin, std::int64_t count,
                   std::vector<optim::ParamRange>& ranges);

/// How ranks share the matrix of file tensor number `file` of a parameter; nothing where this rank
/// has all of it.
std::optional<optim::MatrixParts> matrix_parts(const nn::Param& param, std::size_t file);

}  // namespace atl::parallel
