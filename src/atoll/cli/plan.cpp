#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/paths.h"
#include "atoll/base/resident.h"
#include "atoll/cli/commands.h"
#include "atoll/data/corpus.h"
#include "atoll/ops/peak.h"
#include "atoll/train/island/outer_options.h"
#include "atoll/train/options.h"
#include "atoll/train/progress.h"
#include "atoll/train/recipe.h"
#include "atoll/train/room.h"
#include "atoll/train/trainer.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

// What a run has in memory beside its plan and this process, which holds its tokenizer: code that
// only steps and checkpoints read, and the buffers of what is written
// (bench/results/step-amd-epyc-zen3.md).
constexpr std::size_t kRunBytes = std::size_t{10} << 20;

// Whether a run has made tokens of the text already.
bool is_tokenized(const train::CorpusOptions& data) {
  return !data.text.empty() && path_exists(data.text.front()) && train::is_cached(data);
}

// What a run refuses of its settings once it sees its tokens.
void check_corpus(const train::TrainConfig& config, const train::PreparedCorpus& corpus) {
  train::require_held_out(config, corpus);
  const train::TrainSamples samples(
      corpus, config.data.weights, static_cast<std::uint64_t>(config.run.seed),
      config.train.context, data::parse_packing(config.data.packing, "data.packing"));
}

// The vocabulary the run will have, from what is there already; data.vocab_size is what a tokenizer
// that is still to be trained is asked for.
std::int64_t vocabulary(const train::TrainConfig& config, std::string& origin,
                        std::optional<Tokenizer>& tokenizer) {
  train::CorpusOptions data = train::corpus_options(config);
  if (!data.shards.empty() || is_tokenized(data)) {
    data.shard_cache.clear();  // nothing is copied
    train::PreparedCorpus corpus = train::prepare_corpus(data);
    check_corpus(config, corpus);
    origin = (data.shards.empty() ? data.cache : data.shards.front()).string();
    tokenizer = std::move(corpus.tokenizer);
    return corpus.vocab_size();
  }
  if (!data.tokenizer.empty()) {
    origin = data.tokenizer.string();
    tokenizer = Tokenizer::load(data.tokenizer);
    return tokenizer->vocab_size();
  }
  if (config.data.new_tokenizer != "bpe") {
    origin = fmt::format("data.new_tokenizer = {}", config.data.new_tokenizer);
    tokenizer = train::make_tokenizer(data.text, data.new_tokenizer, data.vocab_size,
                                      data.chat_template, data.special_tokens, data.fields);
    return tokenizer->vocab_size();
  }
  origin = "data.vocab_size: the tokenizer is still to be trained, and a small text gives fewer";
  return config.data.vocab_size;
}

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

// Parts are cut between blocks of elements: some ranks have a little more than others.
int largest_rank(const train::TrainConfig& config, std::int64_t vocab_size, int ranks) {
  int largest = 0;
  std::size_t most = 0;
  for (int rank = 0; rank < std::min(ranks, 64); ++rank) {
    const train::TrainState state(train::state_options(config, vocab_size, -1, ranks, rank));
    if (state.memory().total_bytes() <= most) continue;
    most = state.memory().total_bytes();
    largest = rank;
  }
  return largest;
}

int run(const std::string& path, int ranks, bool placements, const Invocation& invocation) {
  const train::Recipe recipe(path, invocation.overrides);
  train::apply_bf16(recipe.config());
  fmt::print("settings (value, where it came from)\n{}", recipe.settings().describe());
  std::string origin;
  std::optional<Tokenizer> tokenizer;  // kept, as a run keeps it
  const std::int64_t vocab_size = vocabulary(recipe.config(), origin, tokenizer);
  const int rank = largest_rank(recipe.config(), vocab_size, ranks);
  train::TrainState state(train::state_options(recipe.config(), vocab_size, -1, ranks, rank));
  print_model(state, origin);
  fmt::print("\nmemory of {}, taken once before the first step\n{}",
             ranks == 1 ? "one rank" : fmt::format("rank {} of {}, the one with most", rank, ranks),
             train::describe_memory(state.memory()));
  fmt::print(
      "  {:<14} {:>12.2f} MiB with the program, its libraries and buffers\n", "in all",
      static_cast<double>(state.memory().total_bytes() + resident_bytes() + kRunBytes) / (1 << 20));
  const train::TrainConfig& config = recipe.config();
  if (config.outer.islands > 0 || !config.island.coordinator.empty()) {
    fmt::print("\nbeside that as an island, at most (the rank that leads it)\n{}",
               train::describe_outer_memory(config.outer, state.whole_layout()));
  }
  print_work(state, recipe.config());
  if (placements) print_placements(state.memory());
  return 0;
}

Action add(CLI::App& app) {
  const auto path = std::make_shared<std::string>();
  const auto ranks = std::make_shared<int>(1);
  const auto placements = std::make_shared<bool>(false);
  app.add_option("recipe", *path, "TOML file; docs/configuration.md lists its keys");
  app.add_option("-n", *ranks, "data-parallel ranks that would share the run")
      ->check(CLI::Range(1, 1 << 20));
  app.add_flag("--placements", *placements, "also print where every tensor lies, and when");
  return [path, ranks, placements](const Invocation& invocation) {
    return run(*path, *ranks, *placements, invocation);
  };
}

}  // namespace

Command plan_command() {
  return {.name = "plan",
          .summary = "Say what a training run will do and take, without running it.",
          .example = "  atoll plan recipes/kjv-demo.toml --train.micro_batch=16",
          .stray = "one recipe is all that it takes; texts are given with --data.text",
          .takes_overrides = true,
          .add = add,
          .memory_advice = train::kTrainingMemoryAdvice};
}

}  // namespace atl::cli
