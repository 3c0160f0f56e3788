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

TEST(AdapterConfig, WhatItDoesNotComputeIsRefusedByName) {
  EXPECT_EQ(error_of(std::string(kGood) + "}"), "");
  EXPECT_EQ(error_of(std::string(kGood) + R"(, "init_lora_weights": "gaussian"})"), "");
  for (const char* field :
       {R"("use_dora": true)", R"("bias": "all")", R"("modules_to_save": ["lm_head"])",
        R"("rank_pattern": {"q_proj": 8})", R"("layers_to_transform": [0])", R"("new_trick": 3)",
        R"("lora_bias": true)", R"("init_lora_weights": "pissa_niter_4")",
        R"("init_lora_weights": "olora")"}) {
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    EXPECT_THAT(error_of(std::string(kGood) + ", " + field + "}"),
                AllOf(HasSubstr("adapter_config.json"), HasSubstr(name)));
  }
  EXPECT_THAT(error_of(R"({"peft_type": "IA3"})"), HasSubstr("IA3"));
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
                           "target_modules": ".*q_proj"})"),
              HasSubstr("pattern"));
}

}  // namespace
}  // namespace atl::train
