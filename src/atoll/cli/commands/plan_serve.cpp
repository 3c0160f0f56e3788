#include "atoll/cli/commands/plan_serve.h"

#include <fmt/format.h>

#include <limits>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands/simulate.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/read_bandwidth.h"
#include "atoll/serve/stages/layer_split.h"
#include "atoll/serve/stages/serving_plan.h"

namespace atl::cli {

namespace stages = serve::stages;

namespace {

constexpr double kMiB = 1 << 20;

double bytes_per_weight(const std::string& weights) {
  if (weights == "f32") return 4;
  if (weights == "bf16") return 2;
  return 1 + 4.0 / static_cast<double>(ops::kInt8Group);  // and a factor of each group
}

// This machine's rates, which the others are taken to have, too.
void measure(stages::ServingNeeds& needs) {
  const auto device = open_device({});
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  constexpr std::size_t kRead = std::size_t{256} << 20;  // more than a cache
  needs.memory_bytes_per_s = ops::measure_read_bandwidth(run, kRead);
  needs.flops_per_s = ops::measure_peak_flops(run);
}

void print_stages(const stages::ServingPlan& plan) {
  fmt::print("\n  {:<10} {:>14} {:>14} {:>14} {:>16} {:>16}\n", "layers", "weights MiB",
             "cache MiB", "together MiB", "step, 1 row", "step, a group");
  for (const stages::StagePlan& stage : plan.stages) {
    fmt::print("  {:<10} {:>14.1f} {:>14.1f} {:>14.1f} {:>13.2f} ms {:>13.2f} ms\n",
               fmt::format("{}-{}", stage.layers.first, stage.layers.end - 1),
               stage.weight_bytes / kMiB, stage.cache_bytes / kMiB,
               (stage.weight_bytes + stage.cache_bytes) / kMiB, 1e3 * stage.seconds_one,
               1e3 * stage.seconds_full);
  }
}

}  // namespace

void add_serve_flags(ArgumentParser& parser, ServeFlags& flags,
                     const std::vector<Argument>& others) {
  Argument serve = parser.add_flag(
      "--serve", flags.serve,
      "RECIPE is a model: what `atoll serve` takes and gives with it, on machines like this one");
  for (const Argument& other : others) serve.excludes(other);
  constexpr std::int64_t kMost = 1 << 20;
  parser.add_option("--stages", flags.stages, "with --serve: machines that have some layers each")
      .range(std::int64_t{1}, kMost)
      .needs(serve);
  parser.add_option("--layers", flags.layers, "with --serve: of each, as in 0-11,12-23")
      .needs(serve);
  parser
      .add_option("--stage-link", flags.link, "with --serve: between them; bits a second, latency")
      .needs(serve)
      .show_default();
  parser.add_option("--weights", flags.weights, "with --serve: how they are kept")
      .one_of({"f32", "bf16", "int8"})
      .needs(serve)
      .show_default();
  parser.add_option("--slots", flags.slots, "with --serve: answers at once")
      .range(std::int64_t{1}, kMost)
      .needs(serve)
      .show_default();
  parser
      .add_option("--context", flags.context,
                  "with --serve: tokens of a prompt and its answer; the model's positions")
      .range(std::int64_t{1}, std::int64_t{1} << 40)
      .needs(serve);
}

int print_serving(const std::string& model, const ServeFlags& flags) {
  const model_dir::ModelPath path = model_dir::find_model(model);
  const nn::ModelConfig config = model_dir::read_model_config(path);
  if (flags.context > config.max_positions) {
    throw user_error("--context={}: the model has {}; choose at most as many", flags.context,
                     counted(config.max_positions, "position"));
  }
  const auto count = static_cast<std::size_t>(flags.stages);
  const island::SimulatedLink link = parse_link(flags.link);
  stages::ServingNeeds needs = {
      .bytes_per_weight = bytes_per_weight(flags.weights),
      .slots = flags.slots,
      .max_positions = flags.context == 0 ? config.max_positions : flags.context,
      .stages = flags.layers.empty() ? stages::split_evenly(config, count)
                                     : stages::parse_layers(flags.layers, config, count),
      .round_trip_s = 2 * link.latency,
      .link_bytes_per_s = link.bits_per_second > 0 ? link.bits_per_second / 8
                                                   : std::numeric_limits<double>::infinity()};
  measure(needs);
  const stages::ServingPlan plan = stages::plan_serving(config, needs);
  fmt::print("{}: {}, {} of {} tokens, weights in {}\n", path.string(), config.family,
             counted(needs.slots, "answer"), format_count(needs.max_positions), flags.weights);
  fmt::print("machines that read {:.1f} GB/s and multiply at {:.0f} GFLOP/s, as this one does\n",
             needs.memory_bytes_per_s / 1e9, needs.flops_per_s / 1e9);
  print_stages(plan);
  fmt::print("\n  {:<28} {:>10.1f} tok/s, {:.1f} ms a token\n", "one answer",
             plan.tokens_per_s_alone, 1e3 * plan.seconds_of_token_alone);
  fmt::print("  {:<28} {:>10.1f} tok/s together, {:.1f} ms a token each\n",
             counted(needs.slots, "answer"), plan.tokens_per_s, 1e3 * plan.seconds_of_token);
  if (count > 1) {
    fmt::print("  {:<28} {:>10} of {} under way at once\n", "groups", plan.groups,
               counted(plan.rows_of_group, "answer"));
  }
  fmt::print("\nat best: contexts half full, nothing but weights, keys and values read\n");
  return 0;
}

}  // namespace atl::cli
