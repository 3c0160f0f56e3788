#pragma once

// What ranks did with their time lately, for those who watch a run.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "atoll/train/ranks/ranks.h"

namespace atl::train {

/// The file of a run's directory: {"step": of the run, "time": Unix seconds, "steps": how many it
/// is the mean of, "step_ms": [of each rank], "compute_ms": [a micro-batch forward and backward],
/// "waited_ms": [for collectives, a step]}. It is replaced whole, and is not synced to disk: a run
/// does not need it.
inline constexpr const char* kRankTimesFile = "ranks.json";

/// Sums up what the ranks say of their steps, and writes the means about once a second, on the rank
/// that leads. A disk that is full or gone is no trouble here: others tell of it.
class RankTimes {
 public:
  explicit RankTimes(std::filesystem::path dir) : dir_(std::move(dir)) {}

  /// Takes what the ranks said after `step` steps; other ranks than before begin anew.
  void add(std::int64_t step, const std::vector<RankFacts>& facts);

 private:
  using Clock = std::chrono::steady_clock;
  void write(std::int64_t step) const;

  std::filesystem::path dir_;
  Clock::time_point written_at_{};
  std::int64_t steps_ = 0;
  std::vector<RankFacts> sums_;
};

}  // namespace atl::train
