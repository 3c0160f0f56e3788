// What policies are worth on links that change: time to a target, simulated by the protocol's real
// state machines, beside 24 settings that never change. What it printed is in
// bench/results/islands-policies.md.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "atoll/island/policy/policy.h"
#include "atoll/island/simulation/simulation.h"

namespace atl::island {
namespace {

constexpr int kIslands = 4;
constexpr double kParameters = 1e6;
constexpr double kStepSeconds = 0.1;
constexpr double kTarget = 4 * 8000;  // inner steps at H = 0, of all islands
constexpr std::int64_t kDefaultSteps = 32;
constexpr std::int64_t kSteps[] = {8, 16, 32, 64, 128, 256};
constexpr const char* kCodecs[] = {"f32", "bf16", "int8", "e3m0"};

struct Trace {
  const char* name;
  std::function<SimulatedLink(Seconds, int)> link;
};

SimulatedLink mbit(double rate, Seconds latency = 0.01) {
  return {.bits_per_second = rate * 1e6, .latency = latency};
}

std::vector<Trace> traces() {
  return {{"0.5 Mbit/s", [](Seconds, int) { return mbit(0.5); }},
          {"10 Mbit/s", [](Seconds, int) { return mbit(10); }},
          {"200 Mbit/s", [](Seconds, int) { return mbit(200); }},
          {"100, then 10 Mbit/s", [](Seconds now, int) { return mbit(now < 300 ? 100 : 10); }},
          {"sawtooth, 2 to 50 Mbit/s",
           [](Seconds now, int) { return mbit(2 + 48 * std::fmod(now, 600) / 600); }},
          {"20 Mbit/s, round trip 100 ms", [](Seconds, int) { return mbit(20, 0.05); }},
          {"one at 2, others at 100 Mbit/s", [](Seconds, int i) { return mbit(i == 1 ? 2 : 100); }},
          {"20 Mbit/s, 20% noise", [](Seconds now, int) {
             return mbit(20 * (1 + 0.2 * std::sin(1e4 * std::floor(now))));
           }}};
}

SimulationOptions options_of(const Trace& trace, double stale_cost) {
  SimulationOptions options;
  options.num_islands = kIslands;
  options.plan = {.inner_steps = kDefaultSteps,
                  .total_batches = 4'000'000,
                  .min_islands = kIslands,
                  .quorum = kIslands,
                  .grace_seconds = 600};
  options.plan.policy = {.policy = "fixed",
                         .base = {.inner_steps = kDefaultSteps, .codec = "f32", .outer_lr = 0.6},
                         .min_inner_steps = kDefaultSteps / 8,
                         .max_inner_steps = kDefaultSteps * 8,
                         .may_change_codec = true,
                         .may_change_lr = true,
                         .parameters = kParameters};
  options.link_at = trace.link;
  options.parameters = kParameters;
  options.step_seconds = kStepSeconds;
  options.jitter = 0.02;
  options.stale_cost = stale_cost;
  options.target_progress = kTarget;
  options.checkpoint_every = 1000;
  options.max_seconds = 1e7;
  return options;
}

SimulationReport run(const SimulationOptions& options) {
  SimulationReport report = simulate(options, /*seed=*/1);
  for (const std::string& violation : report.violations) fmt::print("VIOLATION {}\n", violation);
  return report;
}

double at(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

void compare(double stale_cost) {
  fmt::print("\nEach exchange costs as at stale_cost = {}:\n\n", stale_cost);
  fmt::print(
      "| link | best of 24, s | its setting | worst, s | default, s | auto, s | of the best | "
      "of the worst | of the default | changes | ends at | prediction off, median | 95% |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Trace& trace : traces()) {
    double best = 1e300;
    double worst = 0;
    double usual = 0;
    std::string setting;
    for (const std::int64_t steps : kSteps) {
      for (const char* codec : kCodecs) {
        SimulationOptions options = options_of(trace, stale_cost);
        options.plan.inner_steps = steps;
        options.plan.policy.base.inner_steps = steps;
        options.plan.policy.base.codec = codec;
        const double seconds = run(options).seconds_to_target;
        worst = std::max(worst, seconds);
        if (steps == kDefaultSteps && std::string(codec) == "f32") usual = seconds;
        if (seconds >= best) continue;
        best = seconds;
        setting = to_text(options.plan.policy.base, 1);
      }
    }
    SimulationOptions options = options_of(trace, stale_cost);
    options.plan.policy.policy = "auto";
    const SimulationReport chosen = run(options);
    const double seconds = chosen.seconds_to_target;
    fmt::print(
        "| {} | {:.0f} | {} | {:.0f} | {:.0f} | {:.0f} | {:.2f} | {:.2f} | {:.2f} | {} | {} | "
        "{:.0f}% | {:.0f}% |\n",
        trace.name, best, setting, worst, usual, seconds, seconds / best, seconds / worst,
        seconds / usual, chosen.schedule_changes, to_text(chosen.schedule, 1),
        100 * at(chosen.prediction_errors, 0.5), 100 * at(chosen.prediction_errors, 0.95));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace atl::island

int main(int argc, char** argv) {
  CLI::App app("Time to a target by auto and by 24 settings that never change, simulated");
  std::vector<double> costs = {0.06, 0.12, 0.24};
  app.add_option("--stale-cost", costs, "what long rounds really cost; auto believes 0.12");
  CLI11_PARSE(app, argc, argv);
  for (const double cost : costs) atl::island::compare(cost);
}
