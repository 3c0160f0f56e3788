#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/bench/bench.h"
#include "atoll/cli/bench/models.h"
#include "atoll/cli/bench/table.h"
#include "atoll/cli/bench/timing.h"
#include "atoll/cli/models/weights.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/read_bandwidth.h"
#include "atoll/serve/inference_engine.h"

namespace atl::cli {

namespace {

struct Options {
  std::string model = kBenchModel;
  std::vector<std::string> weights = {"f32", "bf16", "int8", "w8a8"};
  std::int64_t tokens = 64;
  std::int64_t prompt = 8;
  std::int64_t long_prompt = -1;  // 256, or as many as the model has positions
  std::string int8 = "auto";
  int rounds = 5;
  int threads = 0;
  bool json = false;
};

// One way to keep the weights, and what came of its rounds.
struct Row {
  std::string name;
  std::unique_ptr<serve::InferenceEngine> engine = nullptr;
  std::vector<double> seconds = {};       // a token
  std::vector<double> bandwidth = {};     // of reading as many bytes as a token does
  std::vector<double> share = {};         // of that bandwidth, round by round
  std::vector<double> prompt = {};        // seconds of the long prompt
  std::vector<double> prompt_share = {};  // of the multiply-adds that this takes in f32
};

// Empty: random weights.
std::filesystem::path directory_of(const Options& options) {
  if (is_bench_model(options.model)) return {};
  if (!path_exists(options.model)) {
    throw user_error(
        "--model: there is no directory {}, and no model to measure with of that "
        "name: {}",
        options.model, bench_model_names());
  }
  return model_dir::find_model(options.model);
}

std::unique_ptr<serve::InferenceEngine> make_engine(Device& device, const nn::ModelConfig& config,
                                                    const std::filesystem::path& directory,
                                                    std::int64_t positions,
                                                    serve::Weights weights) {
  auto engine = std::make_unique<serve::InferenceEngine>(device, config, positions, weights);
  if (!directory.empty()) {
    model_dir::load_whole_parameters(directory, engine->model(), engine->store());
    return engine;
  }
  const auto stream = device.open_stream();
  Run run = {.stream = stream.get()};
  engine->store().initialise(run, 1);
  return engine;
}

// After a prompt, and a first token, that are not counted.
double seconds_per_token(serve::InferenceEngine& engine, const Options& options) {
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(options.prompt), 11);
  serve::TokenSampler sampler({.temperature = 0});
  engine.reset();
  engine.append(prompt);
  std::chrono::steady_clock::time_point start;
  std::int64_t made = 0;
  engine.generate({prompt.data(), 1}, options.tokens + 1, sampler, -1, [&](std::int32_t) {
    if (made++ == 0) start = std::chrono::steady_clock::now();
    return true;
  });
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / static_cast<double>(options.tokens);
}

double seconds_of_prompt(serve::InferenceEngine& engine, const Options& options) {
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(options.long_prompt), 11);
  engine.reset();
  return seconds_of([&] { engine.append(prompt); });
}

// Multiply-adds of the long prompt: a third of a training step's, as if all logits were made.
double flops_of_prompt(serve::InferenceEngine& engine, const Options& options) {
  return static_cast<double>(options.long_prompt) / 3 *
         nn::flops_per_token(engine.model(), options.long_prompt);
}

// All in turn, so that each meets the same machine; the first round warms up.
void measure(const Options& options, Run& run, std::vector<Row>& rows) {
  for (int round = 0; round <= options.rounds; ++round) {
    for (Row& row : rows) {
      take_weights({.weights = row.name, .int8 = row.name == "w8a8" ? options.int8 : ""});
      const std::size_t bytes = row.engine->bytes_per_token();
      const double bandwidth = ops::measure_read_bandwidth(run, bytes);
      const double seconds = seconds_per_token(*row.engine, options);
      const double flops = options.long_prompt > 0 ? ops::measure_peak_flops(run) : 0;
      const double prompt = options.long_prompt > 0 ? seconds_of_prompt(*row.engine, options) : 0;
      if (round == 0) continue;
      row.prompt.push_back(prompt);
      row.prompt_share.push_back(flops_of_prompt(*row.engine, options) / prompt / flops);
      row.bandwidth.push_back(bandwidth);
      row.seconds.push_back(seconds);
      row.share.push_back(static_cast<double>(bytes) / seconds / bandwidth);
    }
  }
}

std::vector<Figure> figures_of(const Options& options, const std::vector<Row>& rows) {
  std::vector<Figure> figures;
  for (const Row& row : rows) {
    const double seconds = median(row.seconds);
    const auto bytes = static_cast<double>(row.engine->bytes_per_token());
    std::string note = fmt::format("{:.1f} tok/s, {:.0f} MB a token", 1 / seconds, bytes / 1e6);
    if (&row != &rows.front()) {
      note += fmt::format(", {:.2f} times {}", median(rows.front().seconds) / seconds,
                          rows.front().name);
    }
    figures.push_back({.what = row.name + " weights",
                       .value = bytes / seconds / 1e9,
                       .unit = "GB/s",
                       .limit = median(row.bandwidth) / 1e9,
                       .limit_is = "reading as many bytes",
                       .share = median(row.share),
                       .note = note});
  }
  for (const Row& row : rows) {
    if (median(row.prompt) == 0) break;
    const double tokens = static_cast<double>(options.long_prompt) / median(row.prompt);
    std::string note = counted(options.long_prompt, "token");
    if (&row != &rows.front()) {
      note += fmt::format(", {:.2f} times {}", median(rows.front().prompt) / median(row.prompt),
                          rows.front().name);
    }
    figures.push_back({.what = row.name + " weights, prompt",
                       .value = tokens,
                       .unit = "tok/s",
                       .limit = tokens / median(row.prompt_share),
                       .limit_is = "multiply-adds of f32",
                       .share = median(row.prompt_share),
                       .note = note});
  }
  return figures;
}

int run_generate(Options options) {
  const std::filesystem::path directory = directory_of(options);
  const nn::ModelConfig config = directory.empty() ? bench_model_config(options.model)
                                                   : model_dir::read_model_config(directory);
  if (options.long_prompt < 0) {
    options.long_prompt = std::min<std::int64_t>(256, config.max_positions);
  }
  const std::int64_t positions = std::max(options.prompt + options.tokens + 2, options.long_prompt);
  if (positions > config.max_positions) {
    throw user_error(
        "--prompt={} and --tokens={}, or --long-prompt={}, need {} positions, and the model has {}",
        options.prompt, options.tokens, options.long_prompt, positions, config.max_positions);
  }
  const auto device = open_device({.threads = options.threads});
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  std::vector<Row> rows;
  for (const std::string& name : options.weights) {
    rows.push_back({name, make_engine(*device, config, directory, positions,
                                      take_weights({.weights = name}))});
  }
  measure(options, run, rows);
  const std::vector<Figure> figures = figures_of(options, rows);
  if (options.json) {
    fmt::print("{}\n", figures_to_json(figures));
    return 0;
  }
  fmt::print("{}{}, one sequence, {} after {}, {} in turn; {}\n\n{}", options.model,
             directory.empty() ? " with random weights" : "", counted(options.tokens, "token"),
             options.prompt, counted(options.rounds, "round"), device->name(),
             figure_table(figures));
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser
      .add_option("--model", options->model,
                  bench_model_names() + " with random weights, or a model's directory")
      .show_default();
  parser
      .add_option("--weights", options->weights,
                  "f32, bf16, int8, w8a8, or several with commas: in turn")
      .delimiter(',')
      .one_of({"f32", "bf16", "int8", "w8a8"})
      .show_default();
  parser.add_option("--tokens", options->tokens, "new tokens of a round")
      .range(1, 1 << 20)
      .show_default();
  parser.add_option("--prompt", options->prompt, "tokens before them")
      .range(1, 1 << 20)
      .show_default();
  parser
      .add_option(
          "--long-prompt", options->long_prompt,
          "tokens of a prompt that is timed by itself; 0: none; default: 256, or as many as "
          "the model has positions")
      .range(0, 1 << 20);
  parser.add_option("--int8", options->int8, "auto, vector, vnni or amx: what multiplies for w8a8")
      .one_of({"auto", "vector", "vnni", "amx"})
      .show_default();
  parser.add_option("--rounds", options->rounds, "of each, of which the median counts")
      .range(1, 1000)
      .show_default();
  parser.add_option("--threads", options->threads, "CPU threads; 0: all").range(0, 1024);
  parser.add_flag("--json", options->json, "one line for programs");
  return [options](const Invocation&) { return run_generate(*options); };
}

}  // namespace

Benchmark bench_generate() {
  return {.name = "generate",
          .summary = "tokens of one sequence against reading the weights' bytes, and a prompt",
          .add = add};
}

}  // namespace atl::cli
