#pragma once

#include <string>
#include <string_view>

#include "atoll/island/simulation.h"

namespace atl::cli {

/// "40ms", "1.5s", "10min", "2h" as seconds. Throws Error(kUser) naming `option`.
double parse_duration(std::string_view text, std::string_view option);

/// "100Mbit/s,40ms": bits a second each way, and seconds one way; "unlimited" for the first is as
/// fast as can be. Throws Error(kUser).
island::SimulatedLink parse_link(std::string_view text);

/// What `atoll simulate` prints.
std::string describe(const island::SimulationOptions& options,
                     const island::SimulationReport& report);

}  // namespace atl::cli
