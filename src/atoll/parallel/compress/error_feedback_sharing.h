#pragma once

#include <cstdint>
#include <span>

namespace atl::parallel {

/// The residual of rank `rank` of `num_ranks`, where ranks before had `old`, each the same
/// elements of the flat vector from `first` on. The sum over ranks is conserved. As many ranks or
/// more: each takes that of the old one of its number, and the others have none. Fewer: the sum
/// is written as that many floats, the largest first, each rounded from what those before it leave;
/// block by block another rank begins. Two floats hold 48 bits: that is exact where the largest
/// residual of one rank is within 2^24 of another's (compress::round_residual), and else misses the
/// sum by less than 2^-48 of it.
void share_residual(std::span<const std::span<const float>> old, int num_ranks, int rank,
                    std::int64_t first, std::span<float> mine);

}  // namespace atl::parallel
