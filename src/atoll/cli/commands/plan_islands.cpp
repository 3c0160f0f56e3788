#include "atoll/cli/commands/plan_islands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "atoll/base/quantity.h"
#include "atoll/island/policy/policy.h"
#include "atoll/train/progress/progress.h"

namespace atl::cli {

namespace {

constexpr std::array<std::int64_t, 4> kInnerSteps = {30, 100, 300, 1000};
constexpr std::array<const char*, 4> kCodecs = {"f32", "bf16", "int8", "e3m0"};
constexpr std::int64_t kOuterSteps = 16;
constexpr double kDay = 86400;

}  // namespace

std::string islands_table(const plan::Row& layout, const train::OuterSettings& outer, int islands,
                          const island::SimulatedLink& link, double parameters) {
  std::string text = fmt::format(
      "\n{} of the first layout, {} exchanged: inner steps between two outer steps (outer.inner_"
      "steps), codec (outer.codec)\n\n{:>12}  {:<6} {:>22}  {:>11}\n",
      counted(islands, "island"), counted(static_cast<std::int64_t>(parameters), "parameter"),
      "inner steps", "codec", "GB a day and island", "utilisation");
  for (const std::int64_t steps : kInnerSteps) {
    for (const char* codec : kCodecs) {
      train::OuterSettings settings = outer;
      settings.inner_steps = steps * outer.fragments;
      settings.codec = codec;
      const island::SimulationReport report =
          island::simulate(simulation_of(settings, {.islands = islands,
                                                    .link = link,
                                                    .parameters = parameters,
                                                    .step_seconds = layout.estimate.step_seconds,
                                                    .outer_steps = kOuterSteps}),
                           /*seed=*/1);
      const double daily = report.bytes / islands / std::max(report.seconds, 1e-9) * kDay;
      text += fmt::format("{:>12}  {:<6} {:>22.2f}  {:>10.1f}%\n", settings.inner_steps, codec,
                          daily / 1e9, 100 * report.utilisation);
    }
  }
  train::OuterSettings settings = outer;
  if (settings.policy == "fixed" && settings.algorithm != "async" && settings.algorithm != "gossip")
    settings.policy = "auto";
  if (settings.policy == "fixed") return text;
  const island::SimulationReport report =
      island::simulate(simulation_of(settings, {.islands = islands,
                                                .link = link,
                                                .parameters = parameters,
                                                .step_seconds = layout.estimate.step_seconds,
                                                .outer_steps = 4 * kOuterSteps}),
                       /*seed=*/1);
  const double daily = report.bytes / islands / std::max(report.seconds, 1e-9) * kDay;
  return text + fmt::format("\nouter.policy={} comes to {}: {:.2f} GB a day and island, {:.1f}%\n",
                            settings.policy, island::to_text(report.schedule, settings.fragments),
                            daily / 1e9, 100 * report.utilisation);
}

}  // namespace atl::cli
