#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "atoll/island/simulation/simulation.h"
#include "atoll/train/config/config.h"

namespace atl::cli {

/// "40ms", "1.5s", "10min", "2h" as seconds. Throws Error(kUser) naming `option`.
double parse_duration(std::string_view text, std::string_view option);

/// "512MiB", "16GiB" as bytes. Throws Error(kUser) naming `option`.
double parse_bytes(std::string_view text, std::string_view option);

/// "100Mbit/s,40ms": bits a second each way, and seconds one way; "unlimited" for the first is as
/// fast as can be. Throws Error(kUser).
island::SimulatedLink parse_link(std::string_view text);

/// What a simulated run has beside its outer settings.
struct SimulatedRun {
  int islands = 1;
  island::SimulatedLink link;  ///< of each island
  double parameters = 0;
  double step_seconds = 1;  ///< of an inner step
  std::int64_t outer_steps = 1;
};

/// A simulation of so many outer steps, without faults.
island::SimulationOptions simulation_of(const train::OuterSettings& outer, const SimulatedRun& run);

/// For SimulationOptions::progress: gives `tell` a line about how far a run of so many batches is,
/// when at least `every` of real time went by since it began or the line before.
std::function<void(const island::SimulationProgress&)> tell_progress(
    std::int64_t total_batches, std::chrono::milliseconds every,
    std::function<void(const std::string&)> tell);

/// What `atoll simulate` prints.
std::string describe(const island::SimulationOptions& options,
                     const island::SimulationReport& report);

}  // namespace atl::cli
