#pragma once

#include <cstdint>
#include <span>

namespace atl::parallel {

/// Distributes the residuals of a checkpoint's ranks among `num_ranks` ranks: writes the residual
/// of rank `rank` to `mine`. old[r]: the residual of the checkpoint's rank r. All have the same
/// elements of the flat vector, from `first` on. The sum over ranks is conserved.
///
/// With as many ranks or more, each rank takes the residual with its number; new ranks get 0. With
/// fewer, each element's sum is split into `num_ranks` floats: each float is the rounded rest that
/// the floats before it leave. The ranks take turns, block by block, to get the first and largest
/// float. Two floats hold 48 bits: the sum is exact where the largest residual of one rank is
/// within 2^24 of another's (compress::round_residual), and else off by less than 2^-48 of the sum.
/// One rank alone has one float, and rounds the sum to it.
void share_residual(std::span<const std::span<const float>> old, int num_ranks, int rank,
                    std::int64_t first, std::span<float> mine);

}  // namespace atl::parallel
