#include "atoll/plan/memory.h"

#include <vector>

#include "atoll/train/model/options.h"
#include "atoll/train/step/state.h"

namespace atl::plan {

namespace {

/// The data-parallel rank whose part of the flat vector is largest.
int largest_part(train::TrainState& state) {
  const parallel::FlatLayout& layout = state.store().layout();
  int largest = 0;
  for (int r = 1; r < layout.num_ranks(); ++r) {
    if (layout.share(r) > layout.share(largest)) largest = r;
  }
  return largest;
}

// Sizes that the ranks do not divide are cut unevenly; larger parts come first or last.
std::vector<int> distinct(int parts) {
  if (parts == 1) return {0};
  return {0, parts - 1};
}

}  // namespace

LargestMemory largest_memory(const train::TrainConfig& config, std::int64_t vocab_size, int ranks) {
  // Those that have parts of parameters are neighbours.
  const auto parts = static_cast<int>(config.parallel.tp * config.parallel.ep);
  const auto stages = static_cast<int>(config.parallel.pp);
  LargestMemory most;
  for (int stage = 0; stage < stages; ++stage) {
    for (const int place : distinct(parts)) {
      const int first = stage * parts + place;
      train::TrainState state(train::state_options(config, vocab_size, -1, ranks, first));
      const auto take = [&](const train::TrainState& of, int rank) {
        if (of.memory().total_bytes() > most.bytes) most = {of.memory().total_bytes(), rank};
      };
      take(state, first);
      const int largest = largest_part(state);
      if (largest == 0) continue;
      const int rank = first + largest * parts * stages;
      take(train::TrainState(train::state_options(config, vocab_size, -1, ranks, rank)), rank);
    }
  }
  return most;
}

}  // namespace atl::plan
