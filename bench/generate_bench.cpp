// How fast one sequence is generated, with f32 and with int8 weights in turn, beside the speed at
// which as many bytes are read; and what rounding the weights does to the loss on a text.
//
//   generate_bench --threads 2                                  GPT-2 124M, random weights
//   generate_bench --model runs/kjv-demo --text kjv.txt         a model's own weights, and its loss

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "atoll/base/file.h"
#include "atoll/ops/read_bandwidth.h"
#include "atoll/serve/engine.h"
#include "atoll/train/model_source.h"

namespace atl {
namespace {

struct Options {
  std::string model;
  std::string text;
  int threads = 2;
  int rounds = 5;
  std::int64_t tokens = 64;
  std::int64_t prompt = 8;
  std::int64_t windows = 40;
};

nn::ModelConfig gpt2() {
  return nn::parse_config(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12,
          "n_positions": 1024})",
      "GPT-2 124M");
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// An engine with the weights of the options' model, or with random ones.
std::unique_ptr<serve::Engine> make_engine(Device& device, const Options& options,
                                           const nn::ModelConfig& config, std::int64_t positions,
                                           serve::Weights weights) {
  auto engine = std::make_unique<serve::Engine>(device, config, positions, weights);
  if (!options.model.empty()) {
    train::load_whole_parameters(train::find_model(options.model), engine->model(),
                                 engine->store());
    return engine;
  }
  Stream stream(device);
  Run run = {.stream = &stream};
  engine->store().initialise(run, 1);
  return engine;
}

// Seconds a token, after a prompt that is not counted.
double seconds_per_token(serve::Engine& engine, const Options& options) {
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(options.prompt), 11);
  serve::Sampler sampler({.temperature = 0});
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

void measure_speed(const Options& options) {
  const auto device = open_cpu(options.threads);
  Stream stream(*device);
  Run run = {.stream = &stream};
  const nn::ModelConfig config =
      options.model.empty() ? gpt2() : train::read_model_config(train::find_model(options.model));
  const std::int64_t positions =
      std::min(config.max_positions, options.prompt + options.tokens + 2);
  struct Row {
    const char* name;
    std::unique_ptr<serve::Engine> engine;
    std::vector<double> seconds;
    std::vector<double> bandwidth;
    std::vector<double> share;  // of that bandwidth, round by round
  };
  std::vector<Row> rows;
  rows.push_back({"f32", make_engine(*device, options, config, positions, serve::Weights::kF32)});
  rows.push_back({"int8", make_engine(*device, options, config, positions, serve::Weights::kInt8)});
  for (int round = 0; round <= options.rounds; ++round) {
    for (Row& row : rows) {
      const double bandwidth = ops::measure_read_bandwidth(run, row.engine->bytes_per_token());
      const double seconds = seconds_per_token(*row.engine, options);
      if (round == 0) continue;  // warms up
      row.bandwidth.push_back(bandwidth);
      row.share.push_back(static_cast<double>(row.engine->bytes_per_token()) / seconds / bandwidth);
      row.seconds.push_back(seconds);
    }
  }
  fmt::print("{}, {} tokens a round after {}, {} rounds in turn\n\n", device->name(),
             options.tokens, options.prompt, options.rounds);
  fmt::print("| weights | MB | tokens/s | GB/s | as many bytes read, GB/s | % | times f32 |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    const double seconds = median(row.seconds);
    const double bandwidth = median(row.bandwidth) / 1e9;
    const double gigabytes = static_cast<double>(row.engine->bytes_per_token()) / 1e9;
    fmt::print("| {} | {:.0f} | {:.1f} | {:.1f} | {:.1f} | {:.0f} | {:.2f} |\n", row.name,
               gigabytes * 1e3, 1 / seconds, gigabytes / seconds, bandwidth,
               100 * median(row.share), median(rows[0].seconds) / seconds);
  }
}

// Mean loss of every position but a window's first, in nats.
double loss_of(serve::Engine& engine, const std::vector<std::int32_t>& tokens, std::int64_t length,
               std::int64_t windows) {
  double sum = 0;
  std::int64_t count = 0;
  const auto stride = static_cast<std::int64_t>(tokens.size()) / windows;
  for (std::int64_t w = 0; w < windows && w * stride + length <= std::ssize(tokens); ++w) {
    engine.reset();
    const std::span<const std::int32_t> window(tokens.data() + w * stride,
                                               static_cast<std::size_t>(length));
    const std::vector<double> scores = engine.score(window);
    sum -= std::accumulate(scores.begin(), scores.end(), 0.0);
    count += std::ssize(scores);
  }
  return sum / static_cast<double>(count);
}

void measure_loss(const Options& options) {
  const auto device = open_cpu(options.threads);
  const std::filesystem::path path = train::find_model(options.model);
  const nn::ModelConfig config = train::read_model_config(path);
  const Tokenizer tokenizer = train::load_tokenizer(path);
  const std::vector<std::int32_t> tokens = tokenizer.encode(read_file(options.text));
  const std::int64_t length =
      std::min({config.max_positions, std::int64_t{256}, std::ssize(tokens)});
  double exact = 0;
  for (const auto weights : {serve::Weights::kF32, serve::Weights::kInt8}) {
    const auto engine = make_engine(*device, options, config, length, weights);
    const double loss = loss_of(*engine, tokens, length, options.windows);
    if (weights == serve::Weights::kF32) exact = loss;
    fmt::print("{}: loss {:.6f} on {} windows of {} tokens ({:+.6f})\n",
               weights == serve::Weights::kF32 ? "f32" : "int8", loss, options.windows, length,
               loss - exact);
  }
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::Options options;
  CLI::App app{"Speed of generation, one sequence."};
  app.add_option("--model", options.model, "model directory; none: GPT-2 124M, random weights");
  app.add_option("--text", options.text, "compare the loss on this text, not the speed");
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_option("--tokens", options.tokens)->capture_default_str();
  app.add_option("--prompt", options.prompt, "tokens before the first one")->capture_default_str();
  app.add_option("--windows", options.windows, "of 256 tokens, spread over the text")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    options.text.empty() ? atl::measure_speed(options) : atl::measure_loss(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
