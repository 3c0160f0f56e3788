#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/plan/estimate.h"
#include "atoll/plan/figures.h"
#include "atoll/plan/layout.h"
#include "atoll/plan/memory.h"

namespace atl::plan {

/// What a table of layouts is made from.
struct Question {
  std::filesystem::path recipe;
  std::vector<std::string> overrides;  ///< as train::Recipe takes them
  int ranks = 1;
  std::int64_t vocab_size = 0;
  Figures figures;
  std::size_t memory_bytes = 0;  ///< that a rank may plan
  std::size_t rows = 12;         ///< layouts to find, best first
  /// Layouts whose memory is planned at most; the rest are refused as not looked at.
  std::size_t most_planned = 400;
};

/// A layout that fits.
struct Row {
  Layout layout;
  LargestMemory memory;
  Estimate estimate;
};

/// A layout that a run would refuse, or that does not fit.
struct Refusal {
  Layout layout;
  std::string why;
};

/// The layouts of a question.
struct Ranking {
  std::vector<Row> rows;  ///< shortest step first
  std::vector<Refusal> refused;
  /// Layouts that a run takes and that no row is slower than: by figures alone.
  std::size_t slower = 0;
  std::size_t all = 0;
  double parameters = 0;  ///< trained, of the whole model
};

/// Simulates the layouts of a recipe and ranks those that fit: shortest step first, and of two
/// within 1% the one with fewer ranks that share products, then stages, then ranks that share
/// sequences or experts, then ZeRO. Why a layout is
/// refused comes from what `atoll train` refuses it with. Throws Error(kUser) when none is left,
/// naming the nearest that works. The same question has the same answer.
Ranking rank_layouts(const Question& question);

}  // namespace atl::plan
