#pragma once

// Which GPU each rank of a machine takes.

#include <cstdint>
#include <span>

namespace atl::train {

/// The GPU that a rank opens, as CUDA counts those that it sees: `index` where one is set (0 or
/// more), the only one where it sees one, else the `place`th, which is how many ranks of its
/// machine come before it. `ranks_here`: of its machine. Throws Error(kUser) where it sees some,
/// but not so many.
int gpu_index(std::int64_t index, int place, int ranks_here, int num_gpus);

/// Throws Error(kUser), naming the ranks, where two have opened one GPU. gpus[r] is what
/// gpu_identities() calls that of rank r; 0: it has none, or one that the host plays.
void refuse_shared_gpus(std::span<const std::int64_t> gpus);

}  // namespace atl::train
