#include "atoll/nn/lora_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::nn {
namespace {

using ::testing::HasSubstr;

bool adapts(const LoraOptions& options, const std::string& module) {
  return LoraRules(options, "here").of_module(module, /*in_all_linear=*/true).has_value();
}

TEST(LoraRules, ANameInAListIsTheEndOfAModules) {
  const LoraOptions options = {.targets = {"q_proj", "mlp.up"}};
  EXPECT_TRUE(adapts(options, "q_proj"));
  EXPECT_TRUE(adapts(options, "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(adapts(options, "model.layers.0.self_attn.my_q_proj"));
  EXPECT_TRUE(adapts(options, "model.layers.0.mlp.up"));
  EXPECT_FALSE(adapts(options, "model.layers.0.up"));
}

TEST(LoraRules, APatternMatchesTheWholeName) {
  const LoraOptions options = {.target_pattern = R"(.*\.(0|12)\..*proj)"};
  EXPECT_TRUE(adapts(options, "model.layers.12.self_attn.q_proj"));
  EXPECT_FALSE(adapts(options, "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(adapts({.target_pattern = "q_proj"}, "model.layers.1.self_attn.q_proj"));
}

TEST(LoraRules, LayersAreCountedByTheFirstNumber) {
  LoraOptions options = {.targets = {"up", "model.layers.7.up"}, .layers = {1}};
  EXPECT_TRUE(adapts(options, "model.layers.1.experts.0.up"));
  EXPECT_FALSE(adapts(options, "model.layers.0.experts.1.up"));
  EXPECT_FALSE(adapts(options, "model.up"));
  EXPECT_TRUE(adapts(options, "model.layers.7.up"));  // a whole name counts in every block
  options.layer_patterns = {"h", "experts"};
  EXPECT_TRUE(adapts(options, "model.layers.0.experts.1.up"));
  EXPECT_FALSE(adapts(options, "model.layers.1.up"));
}

TEST(LoraRules, WhatIsExcludedOrSavedIsNotAdapted) {
  const LoraOptions options = {
      .targets = {"all-linear"}, .excluded = {"q_proj"}, .modules_to_save = {"mlp"}};
  EXPECT_FALSE(adapts(options, "layers.0.q_proj"));
  EXPECT_FALSE(adapts(options, "layers.0.mlp.up"));
  EXPECT_TRUE(adapts(options, "layers.0.k_proj"));
  EXPECT_TRUE(adapts(options, "layers.0.my_mlp.up"));
  EXPECT_FALSE(adapts({.targets = {"q"}, .excluded_pattern = ".*\\.q"}, "layers.0.q"));
}

TEST(LoraRules, SavedModulesAreThoseWhoseNamesEndSoAndAllInThem) {
  const LoraRules rules({.modules_to_save = {"norm", "1.mlp"}}, "here");
  EXPECT_TRUE(rules.saves("model.layers.0.input_layernorm"));
  EXPECT_TRUE(rules.saves("model.layers.1.mlp.up"));
  EXPECT_TRUE(rules.saves("model.layers.11.mlp.up"));  // as PEFT: no dot is needed before
  EXPECT_FALSE(rules.saves("model.layers.0.mlp.up"));
}

TEST(LoraRules, TheFirstPatternThatMatchesGivesTheRank) {
  const LoraRules rules({.rank = 8,
                         .alpha = 16,
                         .targets = {"q", "k", "v"},
                         .ranks = {{"0.q", 2}, {"q", 4}, {"k|v", 1}},
                         .alphas = {{"q", 1}}},
                        "here");
  const auto shape = [&](const char* module) { return *rules.of_module(module, true); };
  EXPECT_EQ(shape("layers.0.q").rank, 2);
  EXPECT_EQ(shape("layers.1.q").rank, 4);
  EXPECT_EQ(shape("layers.1.q").scale, 0.25);
  EXPECT_EQ(shape("layers.1.v").rank, 1);
  EXPECT_EQ(shape("layers.1.v").scale, 16);
}

TEST(LoraRules, AnInvalidPatternIsNamed) {
  try {
    adapts({.target_pattern = "a("}, "a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("here"));
    EXPECT_THAT(error.what(), HasSubstr("a("));
  }
}

}  // namespace
}  // namespace atl::nn
