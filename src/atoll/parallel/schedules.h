#pragma once

// All generators of schedules, one file each. A generator is a pure function from a Pipeline and a
// rank to the actions of that rank; simulate_pipeline() says what they need and whether they fit
// together.

#include <vector>

#include "atoll/parallel/pipeline.h"

namespace atl::parallel {

/// Forward through all stages: evaluation and generation. One rank.
std::vector<Action> schedule_forward(std::size_t num_stages);
/// One micro-batch after the other: forward through all stages, then B and W of each, the last
/// stage first. One rank.
std::vector<Action> schedule_sequential(std::size_t num_stages, std::int64_t num_micro_batches = 1);
/// All forward passes, then all backward passes (Huang et al. 2019, "GPipe"). Holds the activations
/// of all micro-batches at once. One chunk a rank.
std::vector<Action> schedule_gpipe(const Pipeline& pipeline, int rank);
/// One forward pass, one backward pass in turn (Narayanan et al. 2019, "PipeDream"; in the form
/// with a flush, Narayanan et al. 2021, 2.2.1). Takes as long as GPipe and holds the activations of
/// at most num_ranks - rank micro-batches. One chunk a rank.
std::vector<Action> schedule_1f1b(const Pipeline& pipeline, int rank);

}  // namespace atl::parallel
