#include <fmt/format.h>

#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/processes/resident.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/commands/plan_layouts.h"
#include "atoll/cli/commands/plan_serve.h"
#include "atoll/cli/models/vocabulary.h"
#include "atoll/ops/peak.h"
#include "atoll/plan/gpu.h"
#include "atoll/plan/memory.h"
#include "atoll/plan/roofline.h"
#include "atoll/train/config/outer_options.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/config/rules.h"
#include "atoll/train/model/memory_check.h"
#include "atoll/train/model/options.h"
#include "atoll/train/progress/progress.h"
#include "atoll/train/ranks/sharing.h"
#include "atoll/train/trainer.h"

namespace atl::cli {

namespace {

// What a run has in memory beside its plan and this process, which holds its tokenizer: code that
// only steps and checkpoints read, and the buffers of what is written
// (bench/results/step-amd-epyc-zen3.md).
constexpr std::size_t kRunBytes = std::size_t{10} << 20;

void print_model(train::TrainState& state, const std::string& vocabulary_origin) {
  const nn::ModelConfig& model = state.model().config;
  const nn::ParameterCount count = nn::count_parameters(state.model());
  fmt::print(
      "\nmodel\n  {:<24} {}\n  {:<24} {}\n  {:<24} {} ({})\n", "family", model.family, "parameters",
      train::format_count(count.total) +
          (count.frozen > 0
               ? fmt::format(" ({} trained)", train::format_count(count.total - count.frozen))
               : ""),
      "vocabulary", train::format_count(model.vocab_size), vocabulary_origin);
}

void print_work(train::TrainState& state, const train::TrainConfig& config) {
  const auto device = open_device({.threads = config.device.threads});
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  const double peak = ops::measure_peak_flops(run);
  const double per_token = nn::flops_per_token(state.model(), config.train.context);
  const std::int64_t tokens = config.train.batch_size * config.train.context;
  const double step_seconds = per_token * static_cast<double>(tokens) / peak;
  fmt::print("\nwork\n  {}\n", nn::flops_formula(state.model()));
  fmt::print("  {:<24} {:.4g}\n", "FLOPs/token", per_token);
  fmt::print("  {:<24} {}\n", "tokens/step", train::format_count(tokens));
  fmt::print("  {:<24} {:.1f} GFLOP/s measured ({})\n", "peak", peak / 1e9, device->name());
  fmt::print("  {:<24} {:.0f} ms at 100% MFU, {:.0f} ms at 60%\n", "step", 1e3 * step_seconds,
             1e3 * step_seconds / 0.6);
  if (config.train.epochs > 0) {
    fmt::print("  {:<24} train.epochs = {:g}; training says how many steps that is\n", "run",
               config.train.epochs);
    return;
  }
  fmt::print("  {:<24} {} at 60% MFU\n", "run",
             train::format_duration(step_seconds / 0.6 * static_cast<double>(config.train.steps)));
}

void print_placements(const MemoryPlan& plan) {
  fmt::print("\nplacements (offset, bytes, first and last tick, name)\n");
  for (const Placement& placement : plan.placements()) {
    const bool forever = placement.last_tick == MemoryPlan::kForever;
    fmt::print("  {:>14} {:>14} {:>6} {:>6}  {}: {}\n", placement.offset, placement.bytes,
               placement.first_tick, forever ? "end" : std::to_string(placement.last_tick),
               placement.group, placement.name);
  }
}

// What a rank plans beside what its GPU has.
void print_room(std::size_t planned, const plan::Figures& gpu) {
  const auto room = static_cast<std::size_t>(gpu.memory_gib * 0x1p30);
  fmt::print("  {:<14} {:>12.2f} MiB of a GPU's memory but for CUDA's own: {}\n", "of",
             static_cast<double>(room) / (1 << 20),
             planned <= room ? "it fits"
                             : "it does not fit; use a smaller train.micro_batch, "
                               "train.recompute=full, or several GPUs with dp.zero=3");
}

// Ops of a micro-batch at the GPU's rates, and the share of products' stated rate that they leave.
void print_gpu_work(train::TrainState& state, const train::TrainConfig& config,
                    const plan::Figures& gpu) {
  const auto rows = plan::roofline(gpu, state.model().config,
                                   {.sequences = config.train.micro_batch,
                                    .context = config.train.context,
                                    .dtype = state.model().options.dtype});
  fmt::print("\nroofline of a micro-batch of {} tokens on one GPU ({})\n{}",
             train::format_count(config.train.micro_batch * config.train.context), gpu.machine,
             plan::roofline_table(rows));
  double seconds = 0;
  for (const plan::RooflineRow& row : rows) seconds += row.seconds;
  const double flops = nn::flops_per_token(state.model(), config.train.context) *
                       static_cast<double>(config.train.micro_batch * config.train.context);
  fmt::print(
      "\nwork\n  {}\n  {:<24} {:.4g}\n  {:<24} {:.1f} TFLOP/s of products alone\n"
      "  {:<24} {:.1f} TFLOP/s, were nothing but these ops in a step\n",
      nn::flops_formula(state.model()), "FLOPs/token",
      nn::flops_per_token(state.model(), config.train.context), "rate", gpu.flops_per_s / 1e12,
      "at most", flops / seconds / 1e12);
}

int run(const std::string& path, int ranks, bool placements, const std::string& gpu,
        const Invocation& invocation) {
  const train::Recipe recipe(path, gpu.empty()
                                       ? invocation.overrides
                                       : plan::overrides_for_gpu(path, invocation.overrides));
  std::optional<plan::Figures> figures;
  if (!gpu.empty() || plan::takes_gpu(recipe.config())) {
    figures = plan::figures_for_gpu(gpu, recipe.config());
  }
  train::require_chosen_layout(recipe.config(), "give --ranks N for the planner's table");
  train::check_ranks(recipe.config(), ranks);  // before a tokenizer is made
  train::apply_bf16(recipe.config());
  train::apply_attention(recipe.config());
  fmt::print("settings (value, where it came from)\n{}", recipe.settings().describe());
  if (const std::string rules = train::describe_rules(recipe.settings()); !rules.empty()) {
    fmt::print("\nrules of the settings that are given\n{}", rules);
  }
  const Vocabulary vocabulary = find_vocabulary(recipe.config());  // kept, as a run keeps it
  const std::int64_t vocab_size = vocabulary.size;
  const int rank = ranks == 1 ? 0 : plan::largest_memory(recipe.config(), vocab_size, ranks).rank;
  train::TrainState state(train::state_options(recipe.config(), vocab_size, -1, ranks, rank));
  print_model(state, vocabulary.origin);
  fmt::print("\nmemory of {}, taken once before the first step\n{}",
             ranks == 1 ? "one rank" : fmt::format("rank {} of {}, the one with most", rank, ranks),
             train::describe_memory(state.memory()));
  if (figures) {
    print_room(state.memory().total_bytes(), *figures);
  } else {
    fmt::print("  {:<14} {:>12.2f} MiB with the program, its libraries and buffers\n", "in all",
               static_cast<double>(state.memory().total_bytes() + resident_bytes() + kRunBytes) /
                   (1 << 20));
  }
  const train::TrainConfig& config = recipe.config();
  if (state.file_memory().total_bytes() > 0) {
    const std::string directory = state.options().offload.directory.string();
    fmt::print("\nin {}\n{}", directory.empty() ? "memory of the host" : "a file of " + directory,
               train::describe_memory(state.file_memory()));
  }
  if (config.outer.islands > 0 || !config.island.coordinator.empty()) {
    fmt::print("\nbeside that as an island, at most ({})\n{}",
               ranks == 1 ? "one rank" : fmt::format("each of {} ranks has a part", ranks),
               train::describe_outer_memory(config.outer, state.whole_layout(), ranks));
  }
  figures ? print_gpu_work(state, config, *figures) : print_work(state, config);
  if (placements) print_placements(state.memory());
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto path = std::make_shared<std::string>();
  const auto ranks = std::make_shared<int>(1);
  const auto placements = std::make_shared<bool>(false);
  parser.add_option("recipe", *path, "TOML file; docs/configuration.md lists its keys");
  const Argument own =
      parser.add_option("-n", *ranks, "ranks that would share the run, in its layout")
          .range(1, 1 << 20);
  const Argument where =
      parser.add_flag("--placements", *placements, "also print where every tensor lies, and when");
  const auto layouts = std::make_shared<LayoutFlags>();
  add_layout_flags(parser, *layouts, {own, where});
  const auto serving = std::make_shared<ServeFlags>();
  add_serve_flags(parser, *serving, {own, where});
  return [path, ranks, placements, layouts, serving](const Invocation& invocation) {
    if (serving->serve) {
      if (layouts->ranks > 0) throw user_error("--ranks is about training; leave out --serve");
      return print_serving(*path, *serving);
    }
    if (layouts->ranks > 0) return print_layouts(*path, *layouts, invocation);
    refuse_without_ranks(*layouts);
    return run(*path, *ranks, *placements, layouts->gpu, invocation);
  };
}

}  // namespace

Command plan_command() {
  return {.name = "plan",
          .summary = "Say what a training run will do and take, without running it.",
          .example =
              "  atoll plan recipes/kjv-demo.toml --train.micro_batch=16\n"
              "  atoll plan recipes/kjv-demo.toml --ranks 2\n"
              "  atoll plan model --serve --stages 2 --stage-link 100Mbit/s,20ms",
          .stray = "one recipe is all that it takes; texts are given as --data.text=a.txt,b.txt",
          .takes_overrides = true,
          .add = add,
          .memory_advice = train::kTrainingMemoryAdvice};
}

}  // namespace atl::cli
