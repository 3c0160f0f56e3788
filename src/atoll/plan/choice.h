#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/plan/ranking.h"

namespace atl::plan {

/// Where the ranks of a question are, and what is known of their machines.
struct Hosts {
  int ranks = 1;
  int ranks_per_host = 0;            ///< 0: as the figures say, or all of them on this machine
  std::optional<Link> network;       ///< between hosts; nothing: as the figures say
  std::optional<double> memory_gib;  ///< of a rank; nothing: as the figures say
  std::filesystem::path figures;     ///< empty: this machine is measured
  std::string gpu;  ///< see figures_for_gpu(); empty: of a run on GPUs, the one at hand
};

/// The question for these ranks: measures this machine, or reads figures. Throws Error(kUser) for
/// hosts that do not fit the ranks, or figures without memory where none is given.
Question ask(const std::filesystem::path& recipe, const std::vector<std::string>& overrides,
             std::int64_t vocab_size, const Hosts& hosts);

/// A layout that was chosen for a run, as its directory keeps it.
struct Choice {
  int ranks = 1;
  std::vector<std::string> arguments;  ///< see as_arguments()
  double step_seconds = 0;             ///< as predicted

  bool operator==(const Choice&) const = default;
};

/// The file of a run's directory that has the choice, so that the run goes on with the same layout.
inline constexpr const char* kChoiceFile = "plan.toml";

/// Nothing where the directory has none. Throws Error(kUser) for a file that is not one.
std::optional<Choice> read_choice(const std::filesystem::path& run_directory);
void write_choice(const std::filesystem::path& run_directory, const Choice& choice);

}  // namespace atl::plan
