#pragma once

#include <cstddef>
#include <cstdint>

#include "atoll/plan/layout.h"

namespace atl::plan {

/// The planned memory of the rank that has most.
struct LargestMemory {
  std::size_t bytes = 0;
  int rank = 0;
};

/// Plans what each rank of a run would take, by the code that plans it in the run, and returns the
/// most. Takes no memory for tensors. Ranks that are alike are planned once: of data-parallel ranks
/// the first and the one with the largest part of the optimizer's state. Throws Error(kUser) where
/// the ranks do not fit the settings.
LargestMemory largest_memory(const train::TrainConfig& config, std::int64_t vocab_size, int ranks);

}  // namespace atl::plan
