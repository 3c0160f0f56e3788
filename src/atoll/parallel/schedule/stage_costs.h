#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/parallel/schedule/simulate_pipeline.h"

namespace atl::parallel {

/// Floating-point operations for one token of each stage of a whole model, at `context` tokens a
/// sequence. A product with a matrix takes 2 for each of its elements in F, and as many in B and in
/// W (none where it is frozen); causal attention 2 T Q in F and twice that in B, Q = heads x
/// head_dim, T at most the layer's window. Norms, activations and the embedding's lookup count an
/// operation for each element that they make. The head makes both gradients in F. What
/// BuildOptions::recompute computes again counts to B.
std::vector<PassCosts> stage_costs(const nn::Model& model, std::int64_t context);

/// Cuts stages into `chunks` rows, each of one stage at least, so that the most costly row costs as
/// little as can be; of such cuts one whose rows are most even (the sum of their squares is least).
/// Returns Pipeline::bounds. Needs chunks from 1 to the number of stages, and no negative cost.
std::vector<std::size_t> balanced_bounds(std::span<const double> costs, std::size_t chunks);
/// Of F, B and W together.
std::vector<std::size_t> balanced_bounds(std::span<const PassCosts> costs, std::size_t chunks);

}  // namespace atl::parallel
