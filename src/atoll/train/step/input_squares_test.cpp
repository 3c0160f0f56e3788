#include "atoll/train/step/input_squares.h"

#include <gtest/gtest.h>

#include <numeric>

#include "atoll/train/testing.h"

namespace atl::train {
namespace {

struct Sample {
  explicit Sample(const std::string& family) : bench(options_of(family)) {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 65; ++i) tokens.push_back(i * 7 % 61);
    source.emplace("test", std::move(tokens));
  }
  static StateOptions options_of(const std::string& family) {
    StateOptions options;
    options.model = testing::tiny_model(family);
    options.context = 16;
    options.training = false;
    return options;
  }
  InputSquares squares(std::int64_t max_tokens = 64) {
    return input_squares(bench.state, bench.run.stream, *source, max_tokens);
  }
  testing::Bench bench;
  std::optional<data::TokenVector> source;
};

double sum_of(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(InputSquares, EveryLinearLayerIsThereByTheNamesOfFiles) {
  Sample llama("llama");
  const InputSquares squares = llama.squares();
  // 2 layers of q, k, v, o, gate, up and down.
  EXPECT_EQ(squares.size(), 14U);
  const std::string at = "model.layers.1.";
  EXPECT_EQ(squares.at(at + "self_attn.q_proj.weight"), squares.at(at + "self_attn.v_proj.weight"));
  EXPECT_EQ(squares.at(at + "mlp.gate_proj.weight"), squares.at(at + "mlp.up_proj.weight"));
  EXPECT_NE(squares.at(at + "mlp.up_proj.weight"), squares.at(at + "self_attn.q_proj.weight"));
  EXPECT_EQ(squares.at(at + "mlp.down_proj.weight").size(), 40U);
  Sample gpt2("gpt2");
  EXPECT_EQ(gpt2.squares().size(), 8U);
}

// A norm whose weights are ones leaves rows with a mean square of 1, but for its epsilon.
TEST(InputSquares, WhatANormGivesHasAMeanSquareOfOne) {
  for (const auto& [family, name] : {std::pair{"llama", "model.layers.0.self_attn.q_proj.weight"},
                                     {"gpt2", "transformer.h.0.mlp.c_fc.weight"}}) {
    Sample sample(family);
    const std::vector<float> squares = sample.squares().at(name);
    ASSERT_EQ(squares.size(), 24U);
    EXPECT_NEAR(sum_of(squares), 24, 24 * 1e-3) << family;
  }
}

TEST(InputSquares, MoreTextIsAnotherMeanAndNothingStaysBehind) {
  Sample sample("llama");
  const InputSquares first = sample.squares(16);
  const InputSquares all = sample.squares();
  EXPECT_NE(first, all);
  // Sums begin anew, and layers that nobody observes any more are the model's as before.
  EXPECT_EQ(sample.squares(16), first);
}

}  // namespace
}  // namespace atl::train
