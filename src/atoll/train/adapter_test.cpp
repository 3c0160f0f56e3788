#include "atoll/model_dir/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::string& json) {
  try {
    model_dir::parse_adapter_config(json, "adapter_config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kGood =
    R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"])";

TEST(AdapterConfig, ComesBackAsItWasWritten) {
  const nn::ModelConfig model = testing::tiny_model("llama");
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"q_proj", "v_proj"}, std::vector<std::string>{"all-linear"}}) {
    const model_dir::AdapterConfig config = {
        {.rank = 3, .alpha = 1.5, .targets = targets, .rank_stabilized = true}, "base"};
    const model_dir::AdapterConfig back =
        model_dir::parse_adapter_config(model_dir::adapter_config_json(config, model), "x");
    EXPECT_EQ(back.lora.rank, 3);
    EXPECT_EQ(back.lora.alpha, 1.5);
    EXPECT_EQ(back.lora.targets, targets);
    EXPECT_TRUE(back.lora.rank_stabilized);
    EXPECT_EQ(back.base, "base");
  }
}

TEST(AdapterConfig, EveryFieldThatChangesTheAdapterComesBack) {
  const nn::ModelConfig model = testing::tiny_model("llama");
  const model_dir::AdapterConfig config = {
      {.rank = 3,
       .alpha = 1.5,
       .targets = {"q_proj"},
       .excluded = {"0.q_proj"},
       .layers = {0, 2},
       .layer_patterns = {"layers"},
       .ranks = {{"z", 5}, {"a", 7}},  // in this order: the first that matches counts
       .alphas = {{"q_proj", 0.5}},
       .modules_to_save = {"norm"},
       .target_parameters = {"experts.down_proj"},
       .tokens = {{"embed_tokens", {4, 2}}},
       .bias = nn::LoraBias::kAdapted,
       .use_dora = true},
      "base",
      false,
      true};
  const model_dir::AdapterConfig back =
      model_dir::parse_adapter_config(model_dir::adapter_config_json(config, model), "x");
  EXPECT_EQ(back.lora.excluded, config.lora.excluded);
  EXPECT_EQ(back.lora.layers, config.lora.layers);
  EXPECT_EQ(back.lora.layer_patterns, config.lora.layer_patterns);
  EXPECT_EQ(back.lora.ranks, config.lora.ranks);
  EXPECT_EQ(back.lora.alphas, config.lora.alphas);
  EXPECT_EQ(back.lora.modules_to_save, config.lora.modules_to_save);
  EXPECT_EQ(back.lora.target_parameters, config.lora.target_parameters);
  EXPECT_EQ(back.lora.tokens, config.lora.tokens);
  EXPECT_EQ(back.lora.bias, nn::LoraBias::kAdapted);
  EXPECT_TRUE(back.lora.use_dora);
  EXPECT_TRUE(back.keeps_tied);
}

TEST(AdapterConfig, WhatItDoesNotComputeIsRefusedByName) {
  EXPECT_EQ(error_of(std::string(kGood) + "}"), "");
  EXPECT_EQ(error_of(std::string(kGood) + R"(, "init_lora_weights": "gaussian"})"), "");
  for (const char* field :
       {R"("layer_replication": [[0, 2], [1, 3]])", R"("alora_invocation_tokens": [1, 2])",
        R"("use_qalora": true)", R"("kasa_config": {"beta": 1})", R"("new_lora_trick": true)",
        R"("new_rank": 3)", R"("new_trick": {"a": 1})", R"("new_list": [1])",
        R"("init_lora_weights": "pissa_niter_4")", R"("init_lora_weights": "olora")",
        R"("bias": "some")", R"("rank_pattern": {"q_proj": 0})", R"("use_dora": 1)",
        R"("layers_to_transform": [-1])", R"("modules_to_save": [3])",
        R"("exclude_modules": "a(")"}) {
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    const bool is_pattern = name == "exclude_modules";
    EXPECT_THAT(error_of(std::string(kGood) + ", " + field + "}"),
                AllOf(HasSubstr("adapter_config.json"), HasSubstr(is_pattern ? "a(" : name)));
  }
  EXPECT_THAT(error_of(R"({"peft_type": "IA3"})"), HasSubstr("IA3"));
}

TEST(AdapterConfig, WhatChangesNoNumberPasses) {
  EXPECT_EQ(error_of(std::string(kGood) + R"(, "velora_config": {"num_groups": 4}, "new_list": [],
                     "new_trick": 3, "use_new_lora": false, "eva_config": {"rho": 2.0}})"),
            "");
}

TEST(AdapterConfig, MalformedOnesAreRefused) {
  EXPECT_THAT(error_of("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(R"({"peft_type": "LORA", "r": 0, "lora_alpha": 1,
                           "target_modules": ["q"]})"),
              HasSubstr("\"r\""));
  EXPECT_THAT(error_of(R"({"peft_type": "LORA", "r": 2, "target_modules": ["q"]})"),
              HasSubstr("lora_alpha"));
  EXPECT_THAT(error_of(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 1})"),
              HasSubstr("target_modules"));
  EXPECT_THAT(error_of(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 1,
                           "target_modules": ".*q_proj", "layers_to_transform": 1})"),
              HasSubstr("layers_to_transform"));
}

}  // namespace
}  // namespace atl::train
