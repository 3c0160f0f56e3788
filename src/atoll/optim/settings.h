#pragma once

// The options of all optimizers as keys of a run's settings.

#include <span>
#include <string>
#include <vector>

#include "atoll/optim/registry.h"

namespace atl::optim {

/// Every option of these optimizers once, in the order of the reference. Several may read one; they
/// must then say the same of it.
std::vector<Option> all_options(std::span<const OptimizerKind> kinds);

/// The names of the optimizers that read an option: "adamw, muon and lion".
std::string readers(std::span<const OptimizerKind> kinds, const std::string& option);

/// What optim.kind may be, for the reference: "adamw; sgd with momentum."
std::string describe(std::span<const OptimizerKind> kinds);

/// The default of every option: the members that settings write to.
OptionValues default_values(std::span<const OptimizerKind> kinds);

/// Registers the options of the first of `kinds`, which is the default, as "optim." and their
/// names. `values` are default_values(kinds), outlive the settings and stay where they are.
void register_default_options(Settings& settings, OptionValues& values,
                              std::span<const OptimizerKind> kinds);
/// Registers the options that only others have, of which the reference says whose they are.
void register_other_options(Settings& settings, OptionValues& values,
                            std::span<const OptimizerKind> kinds);

/// Those of `values` that `kind` reads.
OptionValues values_for(const OptimizerKind& kind, const OptionValues& values);

}  // namespace atl::optim
