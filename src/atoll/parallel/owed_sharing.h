#pragma once

#include <cstdint>
#include <span>

namespace atl::parallel {

/// What rank `rank` of `num_ranks` owes, where ranks that are gone owed `old`, each the same
/// elements of the flat vector from `first` on. The sum over ranks is conserved. As many ranks or
/// more: each takes what the old one of its number owed, and the others owe nothing. Fewer: the sum
/// is written as that many floats, the largest first, each rounded from what those before it leave;
/// block by block another rank begins. Two floats hold 48 bits: that is exact where the largest
/// owed of one rank is within 2^24 of another's (compress::round_owed), and else misses the sum by
/// less than 2^-48 of it.
void share_owed(std::span<const std::span<const float>> old, int num_ranks, int rank,
                std::int64_t first, std::span<float> mine);

}  // namespace atl::parallel
