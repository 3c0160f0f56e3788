#include "atoll/nn/adapters/trained_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/nn/adapters/lora_tokens.h"
#include "atoll/nn/lora.h"
#include "atoll/nn/models/family.h"

namespace atl::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig tiny(const std::string& family, bool is_tied) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = 31;
  config.hidden_size = 12;
  config.num_layers = 1;
  config.heads = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 6};
  config.intermediate_size = 20;
  config.max_positions = 16;
  config.activation = "silu";
  config.tie_embeddings = is_tied;
  return config;
}

class Trained final : public ParamVisitor {
 public:
  void param(Param& param) override {
    if (!param.frozen) all.push_back(&param);
  }
  std::vector<Param*> all;
};

std::string error_of(const ModelConfig& config, const LoraOptions& options,
                     const BuildOptions& build = {}) {
  const auto model = build_model(config, build);
  try {
    add_lora(*model, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TrainedTokens, RowsAreAParameterOfTheirOwn) {
  for (const bool is_tied : {false, true}) {
    const auto model = build_model(tiny("llama", is_tied), {});
    add_lora(*model, {.targets = {"q_proj"}, .tokens = {{"", {7, 30, 3}}}});
    Trained trained;
    model->visit(trained);
    // The embedding's, A and B, and the same rows again for a head that shares them.
    ASSERT_EQ(trained.all.size(), is_tied ? 4U : 3U);
    const Param& rows = *trained.all.front();
    EXPECT_EQ(rows.spec.shape, (Shape{3, 12}));
    ASSERT_EQ(rows.files.size(), 1U);
    EXPECT_EQ(rows.files[0].name,
              "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta");
    EXPECT_TRUE(is_trained_rows(rows));
    EXPECT_TRUE(is_lora_factor(rows));
    EXPECT_EQ(trained.all.back() == &rows, is_tied);
    EXPECT_THAT(tokens_trained_in(*model), ElementsAre(7, 30, 3));
  }
}

TEST(TrainedTokens, WhatDoesNotGoTogetherIsRefused) {
  const ModelConfig tied = tiny("llama", true), untied = tiny("llama", false);
  EXPECT_THAT(error_of(untied, {.targets = {"q_proj"}, .tokens = {{"", {31}}}}),
              HasSubstr("from 0 to 30"));
  EXPECT_THAT(error_of(untied, {.targets = {"q_proj"}, .tokens = {{"lm_head", {1}}}}),
              HasSubstr("lm_head by itself"));
  EXPECT_THAT(
      error_of(tied, {.targets = {"q_proj"}, .tokens = {{"embed_tokens", {1}}, {"lm_head", {2}}}}),
      HasSubstr("by itself"));
  EXPECT_THAT(error_of(tied, {.targets = {"lm_head"}, .tokens = {{"", {1}}}}),
              HasSubstr("lm_head"));
  EXPECT_THAT(error_of(untied, {.targets = {"embed_tokens"}, .tokens = {{"", {1}}}}),
              HasSubstr("embed_tokens"));
  EXPECT_THAT(
      error_of(untied,
               {.targets = {"q_proj"}, .modules_to_save = {"embed_tokens"}, .tokens = {{"", {1}}}}),
      HasSubstr("modules_to_save"));
  ModelConfig even = untied;
  even.heads = {.num_heads = 2, .num_kv_heads = 2, .head_dim = 6};
  EXPECT_THAT(error_of(even, {.targets = {"q_proj"}, .tokens = {{"", {1}}}}, {.tensor_size = 2}),
              HasSubstr("parallel.tp"));
  EXPECT_EQ(
      error_of(tied, {.targets = {"q_proj"}, .tokens = {{"embed_tokens", {1}}, {"lm_head", {1}}}}),
      "");
}

TEST(TrainedTokens, ExpertsThatAreNotThereAreRefused) {
  EXPECT_THAT(error_of(tiny("llama", true),
                       {.targets = {"q_proj"}, .target_parameters = {"mlp.experts.down_proj"}}),
              HasSubstr("no experts"));
  ModelConfig mixtral = tiny("mixtral", false);
  mixtral.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 6};
  EXPECT_THAT(error_of(mixtral, {.target_parameters = {"mlp.down_proj"}}),
              HasSubstr("mlp.down_proj is no stack"));
  EXPECT_THAT(error_of(mixtral, {.target_parameters = {"experts.down_proj"}, .dropout = 0.1}),
              HasSubstr("lora.dropout"));
  EXPECT_EQ(error_of(mixtral, {.target_parameters = {"experts.down_proj"}}), "");
}

}  // namespace
}  // namespace atl::nn
