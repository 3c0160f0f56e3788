// What rounding the weights to bf16 and int8, and activations to int8, does to the loss of a model
// on a text; how fast they are then is what `atoll bench generate` measures.
//
//   generate_bench --model runs/kjv-demo --text kjv.txt

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/ops/int8/int8_arithmetic.h"
#include "atoll/serve/inference_engine.h"

namespace atl {
namespace {

struct Options {
  std::string model;
  std::string text;
  int threads = 2;
  std::int64_t windows = 40;
};

std::unique_ptr<serve::InferenceEngine> make_engine(Device& device,
                                                    const std::filesystem::path& path,
                                                    std::int64_t positions,
                                                    serve::Weights weights) {
  auto engine = std::make_unique<serve::InferenceEngine>(device, model_dir::read_model_config(path),
                                                         positions, weights);
  model_dir::load_whole_parameters(path, engine->model(), engine->store());
  return engine;
}

// Mean loss of every position but a window's first, in nats.
double loss_of(serve::InferenceEngine& engine, const std::vector<std::int32_t>& tokens,
               std::int64_t length, std::int64_t windows) {
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
  const auto device = open_device({.threads = options.threads});
  const std::filesystem::path path = model_dir::find_model(options.model);
  const nn::ModelConfig config = model_dir::read_model_config(path);
  const Tokenizer tokenizer = model_dir::load_tokenizer(path);
  const std::vector<std::int32_t> tokens = tokenizer.encode(read_file(options.text));
  const std::int64_t length =
      std::min({config.max_positions, std::int64_t{256}, std::ssize(tokens)});
  double exact = 0;
  for (const char* name : {"f32", "bf16", "int8", "w8a8"}) {
    const bool rounds = std::string_view(name) == "w8a8";
    ops::set_int8_arithmetic(rounds ? ops::Int8Arithmetic::kAuto : ops::Int8Arithmetic::kF32);
    const auto engine =
        make_engine(*device, path, length, serve::parse_weights(rounds ? "int8" : name));
    const double loss = loss_of(*engine, tokens, length, options.windows);
    if (exact == 0) exact = loss;  // f32 comes first
    fmt::print("{}: loss {:.6f} on {} windows of {} tokens ({:+.6f})\n", name, loss,
               options.windows, length, loss - exact);
  }
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::Options options;
  CLI::App app{"The loss of f32, bf16 and int8 weights, and of int8 activations."};
  app.add_option("--model", options.model, "model directory")->required();
  app.add_option("--text", options.text, "what the loss is of")->required();
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--windows", options.windows, "of 256 tokens, spread over the text")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    atl::measure_loss(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
