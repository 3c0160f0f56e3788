#pragma once

#include <string>

#include "atoll/cli/command.h"
#include "atoll/launch/agent.h"

namespace atl::cli {

/// The flags of `atoll launch` that make it write a script or manifest instead of starting ranks.
struct PrintFlags {
  std::string kind;   ///< one of launch::manifest_kinds(); empty: it starts ranks
  std::string image;  ///< with atoll in it, for containers
};

/// Adds --print and --image.
void add_print_flags(ArgumentParser& parser, PrintFlags& flags);

/// Prints what makes a scheduler start the run that `options` and `invocation` describe:
/// limits.max_ranks ranks, or as many as its layout needs, options.slots of them on each machine.
/// Memory is what the run would plan. Throws Error(kUser) for what the scheduler cannot start.
int print_manifest(const PrintFlags& flags, const launch::LaunchOptions& options,
                   const Invocation& invocation);

}  // namespace atl::cli
