#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "atoll/base/processes/resident.h"
#include "atoll/cli/bench/bench.h"
#include "atoll/cli/bench/room.h"
#include "atoll/cli/bench/table.h"
#include "atoll/cli/bench/timing.h"
#include "atoll/data/loader.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/profile.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/options.h"
#include "atoll/train/progress/progress.h"
#include "atoll/train/step/step.h"
#include "atoll/watch/tensorboard.h"

namespace atl::cli {

namespace {

struct Options {
  std::string recipe;
  int steps = 5;
  int warmup = 2;
  bool json = false;
};

// Tokens without meaning, given as a run gets its own: how long a step takes does not depend on
// what they are.
class Feed {
 public:
  Feed(const train::TrainConfig& config, std::int64_t vocab_size)
      : source_("made-up tokens", made_up(2 * config.train.context + (1 << 18), vocab_size)),
        sampler_(1, source_.num_tokens(), config.train.context),
        loader_(
            source_, sampler_,
            {.micro_batch = config.train.micro_batch, .global_batch = config.train.batch_size}) {}

  data::Loader& loader() { return loader_; }

 private:
  static std::vector<std::int32_t> made_up(std::int64_t size, std::int64_t vocab_size) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(size));
    std::mt19937 random(1);
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(vocab_size) - 1);
    for (std::int32_t& token : tokens) token = any(random);
    return tokens;
  }

  data::TokenVector source_;
  data::Sampler sampler_;
  data::Loader loader_;
};

// What a run keeps of a step at log.every = 1: a line of metrics.jsonl and TensorBoard's scalars.
class Log {
 public:
  void write(std::int64_t step, const train::StepResult& result, double seconds) {
    const metrics::Record record = {.step = step,
                                    .values = {{"loss", result.loss},
                                               {"grad_norm", result.grad_norm},
                                               {"lr", 1e-4},
                                               {"tokens", result.targets * step},
                                               {"tokens_per_s", 1 / seconds},
                                               {"mfu", 0.5},
                                               {"step_ms", 1e3 * seconds},
                                               {"data_fraction", 0.0}}};
    jsonl_.write(record);
    tensorboard_.write(record);
  }

 private:
  BenchRoom room_ = BenchRoom(std::filesystem::temp_directory_path());
  metrics::JsonlSink jsonl_ = metrics::JsonlSink(room_.path() / "metrics.jsonl", -1);
  watch::TensorBoardSink tensorboard_ = watch::TensorBoardSink(room_.path(), -1);
};

constexpr double kMiB = 1 << 20;

// What steps of a model took.
struct Measured {
  ops::OpProfile profile;
  std::vector<double> seconds;  // of each step
  double data_seconds = 0;      // waited for samples, a step
  double logging_seconds = 0;   // writing a record, a step
  double tokens = 0;            // of a step
  double flops_per_token = 0;
  double peak_bytes = 0, planned_bytes = 0;
  double program_bytes = 0;  // held before what is planned was taken
};

Measured measure(const Options& options, const train::TrainConfig& config, Device& device,
                 train::TrainState& state) {
  const auto stream = device.open_stream();
  Run run = {.stream = stream.get()};
  state.allocate(device);
  state.store().initialise(run, static_cast<std::uint64_t>(config.run.seed));
  state.optimizer().init_masters(run, state.store().values());
  Feed feed(config, state.model().config.vocab_size);
  Log log;
  Measured measured;
  double waited = 0;
  train::StepOptions step = {
      .seed = 1,
      .num_micro_batches = config.train.batch_size / config.train.micro_batch,
      .lr = config.optim.lr,
      .clip = config.optim.clip};
  for (int i = 0; i < options.warmup + options.steps; ++i) {
    if (i == options.warmup) {
      step.profile = &measured.profile;
      waited = feed.loader().waited_seconds();
      measured.logging_seconds = 0;
    }
    step.step = i;
    train::StepResult result;
    const double took = seconds_of([&] {
      result = train::take_step(state, *stream, step, [&] { return feed.loader().next(); });
    });
    measured.logging_seconds += seconds_of([&] { log.write(i, result, took); });
    if (i >= options.warmup) measured.seconds.push_back(took);
  }
  measured.data_seconds = (feed.loader().waited_seconds() - waited) / options.steps;
  measured.logging_seconds /= options.steps;
  measured.tokens = static_cast<double>(config.train.batch_size * config.train.context);
  measured.flops_per_token = nn::flops_per_token(state.model(), config.train.context);
  measured.peak_bytes = static_cast<double>(peak_resident_bytes());
  measured.planned_bytes = static_cast<double>(state.memory().total_bytes());
  return measured;
}

void print(const Measured& measured, const Ceilings& ceilings, nn::Model& model) {
  fmt::print("multiply-adds on registers {:.0f} GFLOP/s, copying {:.1f} GB/s\n\n{}",
             ceilings.flops / 1e9, ceilings.bytes / 1e9,
             op_table(measured.profile.rows(), ceilings, measured.seconds));
  const double seconds = median(measured.seconds);
  const double rate = measured.flops_per_token * measured.tokens / seconds;
  fmt::print("\nstep {:.1f} ms (median of {}), {:.0f} tok/s, {:.0f} model GFLOP/s = {:.1f}% MFU\n",
             1e3 * seconds, measured.seconds.size(), measured.tokens / seconds, rate / 1e9,
             100 * rate / ceilings.flops);
  fmt::print("{}\n", nn::flops_formula(model));
  fmt::print(
      "waiting for samples {:.1f} us a step ({:.4f}%), writing its metrics {:.1f} us ({:.4f}%)\n",
      1e6 * measured.data_seconds, 100 * measured.data_seconds / seconds,
      1e6 * measured.logging_seconds, 100 * measured.logging_seconds / seconds);
  fmt::print(
      "peak resident memory {:.1f} MiB, {:.3f} of the {:.1f} MiB planned and the program's "
      "{:.1f}\n",
      measured.peak_bytes / kMiB,
      measured.peak_bytes / (measured.planned_bytes + measured.program_bytes),
      measured.planned_bytes / kMiB, measured.program_bytes / kMiB);
}

int run_step(const Options& options, const Invocation& invocation) {
  const train::Recipe recipe(options.recipe, invocation.overrides);
  const train::TrainConfig& config = recipe.config();
  train::apply_bf16(config);
  const auto device = open_device({.threads = config.device.threads});
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  train::TrainState state(train::state_options(config, config.data.vocab_size, -1));
  const auto program_bytes = static_cast<double>(resident_bytes());  // when `atoll plan` asks
  Ceilings ceilings = {.flops = ops::measure_peak_flops(run)};
  Measured measured = measure(options, config, *device, state);
  measured.program_bytes = program_bytes;
  if (options.json) {
    const nlohmann::ordered_json json = {{"step_seconds", measured.seconds},
                                         {"data_seconds", measured.data_seconds},
                                         {"logging_seconds", measured.logging_seconds},
                                         {"tokens", measured.tokens},
                                         {"flops_per_token", measured.flops_per_token},
                                         {"peak_flops", ceilings.flops},
                                         {"peak_resident_bytes", measured.peak_bytes},
                                         {"planned_bytes", measured.planned_bytes},
                                         {"program_bytes", measured.program_bytes}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  ceilings.bytes = ops::measure_copy_bandwidth(run);  // takes memory: the peak is read by now
  fmt::print("{} with {} parameters, {} x {} tokens a step; {}\n", state.model().config.family,
             train::format_count(nn::count_parameters(state.model()).total),
             config.train.batch_size, config.train.context, device->name());
  print(measured, ceilings, state.model());
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("recipe", options->recipe,
                    "TOML file; of its data only data.vocab_size counts");
  parser.add_option("--steps", options->steps, "steps that are measured")
      .range(1, 10'000)
      .show_default();
  parser.add_option("--warmup", options->warmup, "steps before them")
      .range(0, 10'000)
      .show_default();
  parser.add_flag("--json", options->json, "one line for programs: seconds of each step, memory");
  return [options](const Invocation& invocation) { return run_step(*options, invocation); };
}

}  // namespace

Benchmark bench_step() {
  return {.name = "step",
          .summary = "one training step of a recipe's model, op by op",
          .takes_overrides = true,
          .add = add};
}

}  // namespace atl::cli
