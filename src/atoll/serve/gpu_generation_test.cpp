// Generation on the fake GPU: the program's own engine, whose weights, caches and logits are in
// memory that the host cannot touch.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/serve/inference_engine.h"
#include "atoll/serve/token_sampler.h"

namespace atl::serve {
namespace {

constexpr std::int64_t kVocab = 61;
constexpr std::int64_t kMaxTokens = 96;

nn::ModelConfig tiny_model(const std::string& family) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = kVocab;
  config.hidden_size = 24;
  config.num_layers = 2;
  config.heads = {.num_heads = 4, .num_kv_heads = family == "gpt2" ? 4 : 2, .head_dim = 6};
  config.intermediate_size = 40;
  config.max_positions = kMaxTokens;
  config.initializer_range = 0.3;  // far from zero: tokens and positions matter
  config.qk_norm = family == "qwen3" || family == "qwen3_moe";
  if (family == "mixtral" || family == "qwen3_moe") {
    config.experts = {.num_experts = 4,
                      .top_k = 2,
                      .intermediate_size = config.intermediate_size,
                      .normalize = family == "mixtral"};
  }
  if (family == "gpt2") {
    config.activation = "gelu_new";
    config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  }
  return config;
}

struct Outcome {
  std::vector<std::vector<float>> logits;  // behind the prompt, and behind each token after it
  std::vector<std::int32_t> tokens;
};

// A prompt of several pieces, then the likeliest tokens, one at a time.
Outcome generate(Device& device, const nn::ModelConfig& config) {
  InferenceEngine engine(device, config, kMaxTokens);
  const auto stream = device.open_stream();
  Run run = {.stream = stream.get()};
  engine.store().initialise(run, 5);
  stream->synchronize();
  std::vector<std::int32_t> prompt(37);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<std::int32_t>(7 * i % kVocab);
  }
  TokenSampler sampler({.temperature = 0});
  Outcome outcome;
  auto logits = engine.append(prompt);
  for (std::int64_t i = 0; i < 6; ++i) {
    outcome.logits.emplace_back(logits.begin(), logits.end());
    const std::int32_t token = sampler.next(logits, 0, i);
    outcome.tokens.push_back(token);
    logits = engine.append({&token, 1});
  }
  return outcome;
}

class GpuGeneration : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GpuGeneration,
                         testing::Values("llama", "gpt2", "qwen3", "mixtral", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GpuGeneration, GivesTheTokensOfTheCpuInEveryOrder) {
  const nn::ModelConfig config = tiny_model(GetParam());
  const auto cpu = open_cpu(2);
  const Outcome expected = generate(*cpu, config);
  Outcome first;
  for (std::uint64_t order = 0; order < 8; ++order) {
    fake_cuda::FakeCudaDevice device({.seed = order, .threads = 2});
    const Outcome got = generate(device, config);
    if (order == 0) first = got;
    EXPECT_EQ(got.tokens, expected.tokens) << order;
    EXPECT_EQ(got.logits, first.logits) << order;
  }
  for (std::size_t i = 0; i < first.logits.size(); ++i) {
    for (std::size_t v = 0; v < first.logits[i].size(); ++v) {
      // Sums in another order.
      EXPECT_NEAR(first.logits[i][v], expected.logits[i][v], 1e-4);
    }
  }
}

TEST(GpuGenerationTokens, ThatTheModelDoesNotHaveAreRefused) {
  fake_cuda::FakeCudaDevice device({});
  InferenceEngine engine(device, tiny_model("llama"), kMaxTokens);
  EXPECT_THROW(engine.append(std::vector<std::int32_t>{kVocab}), Error);
}

}  // namespace
}  // namespace atl::serve
