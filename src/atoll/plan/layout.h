#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/train/config/config.h"

namespace atl::plan {

/// How the ranks of a run share its work: all that the planner decides.
struct Layout {
  int data = 1;     ///< data-parallel ranks: what the other axes leave
  int tensor = 1;   ///< parallel.tp
  int stages = 1;   ///< parallel.pp
  int context = 1;  ///< parallel.cp
  int experts = 1;  ///< parallel.ep
  int zero = 0;     ///< dp.zero
  std::string recompute = "none";
  std::string schedule = "1f1b";  ///< of a pipeline; without one it says nothing
  int chunks = 0;                 ///< parallel.chunks
  std::int64_t micro_batch = 1;   ///< sequences

  int ranks() const { return data * tensor * stages * context * experts; }
  /// Those that have micro-batches of their own.
  int takers() const { return data * experts; }
  /// Those that have the same parameters, and share them by ZeRO.
  int sharing() const { return data * context; }
  bool operator==(const Layout&) const = default;
};

/// "dp 2, tp 1, pp 2 zb-h1, cp 1, ep 1, ZeRO 0, recompute none, micro-batch 4".
std::string describe(const Layout& layout);
/// The settings that make it, as arguments: "--parallel.tp=2", ...
std::vector<std::string> as_arguments(const Layout& layout);

/// Which of those settings a recipe has given: these stay.
struct Given {
  bool tensor = false, stages = false, context = false, experts = false, zero = false;
  bool recompute = false, schedule = false, chunks = false, micro_batch = false;
};
Given given_in(const Settings& settings);

/// The layout that a run on `ranks` ranks has by its settings alone. Where its axes do not divide
/// the ranks, ranks() is less than `ranks`.
Layout layout_of(const train::TrainConfig& config, int ranks);

/// All layouts of so many ranks: each product of data, tensor, pipeline and context ranks, and of
/// ranks that share experts, of which the model has `num_experts` (0: none); stages
/// of ZeRO (where several ranks have the same parameters), recompute, schedules (of a pipeline;
/// interleaved with 2 and 4 chunks), and micro-batches that divide train.batch_size. Ranks share
/// sequences only where a micro-batch is the smallest that there is: of several sequences, each
/// rank would rather take fewer. What is given is not varied. Whether a run takes them is not
/// asked. The order is always the same.
std::vector<Layout> all_layouts(const train::TrainConfig& config, const Given& given, int ranks,
                                std::int64_t num_experts = 0);

/// How far one layout is from another, for naming the nearest: factors between sizes as powers of
/// two, and one for each other choice.
double distance(const Layout& a, const Layout& b);

/// The settings of a recipe with one layout after the other in them.
class Variants {
 public:
  /// As train::Recipe, but for parallel.layout, which is manual in each.
  Variants(const std::filesystem::path& recipe, const std::vector<std::string>& overrides);
  Variants(const Variants&) = delete;
  Variants& operator=(const Variants&) = delete;

  /// As the recipe gives them, unchecked; before the first with().
  const train::TrainConfig& config() const { return config_; }
  const Settings& settings() const { return settings_; }
  /// The settings with this layout, until the next call. Throws Error(kUser) as train::validate
  /// does.
  const train::TrainConfig& with(const Layout& layout);

 private:
  train::TrainConfig config_;
  Settings settings_;
};

/// Throws what train::Recipe throws of a recipe, unless another layout would help.
void check_but_for_layout(const std::filesystem::path& recipe,
                          const std::vector<std::string>& overrides);

}  // namespace atl::plan
