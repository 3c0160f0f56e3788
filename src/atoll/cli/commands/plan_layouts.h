#pragma once

#include <string>
#include <vector>

#include "atoll/cli/command.h"

namespace atl::cli {

/// What `atoll plan --ranks` is told beside the recipe.
struct LayoutFlags {
  int ranks = 0;  ///< 0: no table is wanted
  int ranks_per_host = 0;
  std::string memory, link, figures, write_figures;
  std::string gpu;  ///< says something without --ranks too
  int islands = 0;  ///< 0: the run has none
  std::string island_link = "100Mbit/s,40ms";
  int rows = 12;
  bool all = false;
  bool json = false;
};

/// Declares them on `parser`. `others` are options that mean nothing beside --ranks.
void add_layout_flags(ArgumentParser& parser, LayoutFlags& flags,
                      const std::vector<Argument>& others);

/// Throws Error(kUser) where one of them is given without --ranks.
void refuse_without_ranks(const LayoutFlags& flags);

/// Prints the table of layouts; returns the exit code.
int print_layouts(const std::string& recipe, const LayoutFlags& flags,
                  const Invocation& invocation);

}  // namespace atl::cli
