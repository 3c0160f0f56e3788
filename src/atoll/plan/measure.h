#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/plan/figures.h"
#include "atoll/train/step/state.h"

namespace atl::plan {

/// What is measured.
struct MeasureOptions {
  int ranks = 1;    ///< of this host, as threads of this process
  int threads = 0;  ///< of a rank; 0: its share of the CPUs
  /// One rank's model and memory; its micro_batch is what layers are measured with.
  train::StateOptions state;
  std::vector<int> tensor = {1};                  ///< sizes of groups that share products
  std::vector<std::int64_t> micro_batches = {1};  ///< sequences
  std::vector<int> context = {1};                 ///< sizes of groups that share sequences
};

/// Measures this machine as ranks of a run use it: each rate while all ranks are at work, each call
/// several times, the shortest taken, because others may use the machine. Takes some
/// seconds for a small model; what would take longer is measured on fewer tokens.
Figures measure(const MeasureOptions& options);

}  // namespace atl::plan
