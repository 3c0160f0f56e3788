// Generation on the fake GPU: the program's own engine, whose weights, caches and logits are in
// memory that the host cannot touch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/ops/int8/int8_arithmetic.h"
#include "atoll/serve/inference_engine.h"
#include "atoll/serve/token_sampler.h"
#include "atoll/tensor/host_access.h"

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

// Numbers far from zero; norms' scales near 1.
void fill(parallel::ParamStore& store) {
  std::uint64_t number = 0;
  store.fill([&](const nn::Param& param, const Tensor& whole) {
    const RngStream stream(5, RngPurpose::kSynthetic, ++number);
    const float middle = param.spec.shape.rank() == 1 ? 1.0F : 0.0F;
    write_on_host<float>(whole, [&](std::span<float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = middle + 0.3F * stream.normal(i);
    });
  });
}

// A prompt of several pieces, then the likeliest tokens, one at a time.
Outcome generate(Device& device, const nn::ModelConfig& config, Weights weights = Weights::kF32,
                 std::size_t prompt_length = 37) {
  InferenceEngine engine(device, config, kMaxTokens, weights);
  fill(engine.store());
  std::vector<std::int32_t> prompt(prompt_length);
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

// A piece of 8 and single tokens go through kernels that read bf16 and int8, one of 64 through
// products with widened weights. Of w8a8 the products have the bits of the CPU.
TEST_P(GpuGeneration, NarrowWeightsGiveTheTokensOfTheCpu) {
  constexpr std::size_t kPrompt = 64 + 8 + 1;
  const nn::ModelConfig config = tiny_model(GetParam());
  for (const char* name : {"bf16", "int8", "w8a8"}) {
    const bool rounds = std::string_view(name) == "w8a8";
    const Weights weights = parse_weights(rounds ? "int8" : name);
    ops::set_int8_arithmetic(rounds ? ops::Int8Arithmetic::kVector : ops::Int8Arithmetic::kF32);
    const auto cpu = open_cpu(2);
    const Outcome expected = generate(*cpu, config, weights, kPrompt);
    fake_cuda::FakeCudaDevice device({.seed = 3, .threads = 2});
    const Outcome got = generate(device, config, weights, kPrompt);
    EXPECT_EQ(got.tokens, expected.tokens) << name;
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      for (std::size_t v = 0; v < got.logits[i].size(); ++v) {
        // Sums in another order; an activation that falls to the other side of a half is off by a
        // 127th of its group's largest.
        EXPECT_NEAR(got.logits[i][v], expected.logits[i][v], rounds ? 0.1 : 1e-4) << name;
      }
    }
  }
  ops::set_int8_arithmetic(ops::Int8Arithmetic::kF32);
}

TEST(GpuGenerationTokens, AreDrawnAsOnTheHost) {
  const SamplingOptions options[] = {{.temperature = 0.8, .top_p = 0.95, .seed = 1},
                                     {.temperature = 1.2, .top_k = 9, .seed = 2},
                                     {.temperature = 3, .seed = 3}};
  const auto drawn = [&](Device& device, std::int64_t vocab_size) {
    InferenceEngine engine(device, tiny_model("llama"), kMaxTokens);
    fill(engine.store());
    engine.limit_vocabulary(vocab_size);
    std::vector<std::int32_t> tokens;
    for (const SamplingOptions& one : options) {
      engine.reset();
      engine.generate(std::vector<std::int32_t>{3, 1, 4}, 12, TokenSampler(one), -1,
                      [&](std::int32_t token) {
                        EXPECT_LT(token, vocab_size);
                        tokens.push_back(token);
                        return true;
                      });
    }
    return tokens;
  };
  for (const std::int64_t vocab_size : {kVocab, kVocab - 20}) {
    const auto cpu = open_cpu(2);
    fake_cuda::FakeCudaDevice gpu({.seed = 5, .threads = 2});
    EXPECT_EQ(drawn(gpu, vocab_size), drawn(*cpu, vocab_size));
  }
}

TEST(GpuGenerationTokens, ThatTheModelDoesNotHaveAreRefused) {
  fake_cuda::FakeCudaDevice device({});
  InferenceEngine engine(device, tiny_model("llama"), kMaxTokens);
  EXPECT_THROW(engine.append(std::vector<std::int32_t>{kVocab}), Error);
}

}  // namespace
}  // namespace atl::serve
