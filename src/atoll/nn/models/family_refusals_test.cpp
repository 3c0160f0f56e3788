// What no family reads, each by the name of its field.

#include "atoll/nn/models/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/nn/models/family_testing.h"

namespace atl::nn {
namespace {

using family_testing::changed;
using family_testing::error_of;
using family_testing::kGpt2;
using family_testing::kLlama;
using family_testing::kMistral;
using family_testing::kQwen2;
using family_testing::kQwen3;
using family_testing::with;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Family, RefusesNumbersThatCannotBe) {
  EXPECT_NE(error_of(with(kGpt2, R"("initializer_range": -0.1)")), "no error");
  std::string json = kLlama;
  json.replace(json.find("1e-06"), 5, "-5.00");
  EXPECT_NE(error_of(json).find("epsilon"), std::string::npos);
}

// Each family with a field that would change what it computes: the error names file, field, value.
struct Refusal {
  const char* base;
  const char* field;
  const char* value;
};

TEST(Family, RefusesFieldsThatChangeTheMathematicsByName) {
  const Refusal refusals[] = {
      {kLlama, "hidden_act", "\"gelu\""},
      {kLlama, "attention_multiplier", "0.5"},
      {kLlama, "final_logit_softcapping", "30.0"},
      {kLlama, "attn_logit_softcapping", "50.0"},
      {kLlama, "partial_rotary_factor", "0.5"},
      {kLlama, "is_causal", "false"},
      {kLlama, "sliding_window", "4096"},
      {kLlama, "rope_interleaved", "true"},
      {kLlama, "layer_types", "[\"sliding_attention\",\"full_attention\"]"},
      {kLlama, "quantization_config", "{\"bits\":4}"},
      {kMistral, "hidden_act", "\"relu\""},
      {kMistral, "layer_types", "[\"sliding_attention\",\"full_attention\",\"full_attention\"]"},
      {kMistral, "attention_bias", "true"},
      {kMistral, "llama_4_scaling", "{\"beta\":0.1}"},
      {kMistral, "num_local_experts", "8"},
      {kQwen2, "layer_types", "[\"full_attention\"]"},
      {kQwen2, "layer_types", "[\"full_attention\",\"linear_attention\",\"full_attention\"]"},
      {kQwen2, "use_mrope", "true"},
      {kQwen2, "attention_bias", "true"},
      {kQwen3, "layer_types", "[\"full_attention\",\"full_attention\",\"sliding_attention\"]"},
      {kQwen3, "num_experts", "8"},
      {kQwen3, "mlp_bias", "true"},
      {kGpt2, "scale_attn_weights", "false"},
      {kGpt2, "scale_attn_by_inverse_layer_idx", "true"},
      {kGpt2, "rope_theta", "10000.0"},
  };
  for (const auto& [base, field, value] : refusals) {
    const std::string error = error_of(with(base, fmt::format("\"{}\": {}", field, value)));
    EXPECT_THAT(error, AllOf(HasSubstr("dir/config.json"), HasSubstr(fmt::format("\"{}\"", field)),
                             HasSubstr(value)));
  }
}

// What trainers, hubs and other versions of transformers write beside the architecture, as it
// stands in published uploads. None changes a number in transformers.
TEST(Family, BookkeepingIsReadPast) {
  const char* const harmless[] = {
      R"("unsloth_fixed": true)",
      R"("unsloth_version": "2025.3.19")",
      R"("neftune_noise_alpha": 5.0)",
      R"("use_bfloat16": false)",
      R"("temperature": 0.6)",
      R"("top_p": 0.9)",
      R"("do_sample": true)",
      R"("max_length": 4096)",
      R"("tokenizer_class": "LlamaTokenizerFast")",
      R"("_attn_implementation": "flash_attention_2")",
      R"("attn_implementation": "sdpa")",
      R"("id2label": {"0": "LABEL_0"})",
      R"("label2id": {"LABEL_0": 0})",
      R"("auto_map": {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"})",
      R"("task_specific_params": {"text-generation": {"do_sample": true}})",
      R"("gradient_checkpointing": false)",
      R"("pruned_heads": {})",
      R"("bad_words_ids": [[1, 2]])",
      R"("suppress_tokens": [7])",
      R"("add_eos_token": true)",
      R"("quantization_config": null)",
      R"("pad_token": "<pad>")",
      R"("transformers.js_config": {"dtype": "q4"})",
      R"("some_new_rope_option": null)",
      R"("use_extra_norm": false)",
      R"("mergekit_revision": "v0.1")",
      R"("my_run": 7)",
      R"("training_time_h": 3.5)",
  };
  for (const char* config : {kLlama, kMistral, kQwen2, kQwen3, kGpt2}) {
    for (const char* field : harmless)
      EXPECT_EQ(error_of(with(config, field)), "no error") << field;
  }
}

TEST(Family, WhatCouldBeArchitectureIsNot) {
  for (const char* field :
       {R"("use_post_norm": true)", R"("rope_ratio": 2)", R"("my_objects": {"a": 1})",
        R"("list_of_things": [1])", R"("num_shared_experts": 1)", R"("residual_alpha": 0.5)",
        R"("logit_scale": 0.06)", R"("attn_output_gate": true)", R"("kv_channels": 128)"}) {
    EXPECT_THAT(error_of(with(kLlama, field)), HasSubstr("atoll does not know the field")) << field;
  }
}

// Whoever takes it out has weights that are no floats.
TEST(Family, QuantisedWeightsAreNotSaidToBeRemovable) {
  for (const char* config : {kLlama, kGpt2}) {
    for (const char* method : {"bitsandbytes", "gptq", "awq", "gguf"}) {
      const std::string known =
          fmt::format(R"("quantization_config": {{"quant_method": "{}", "bits": 4}})", method);
      EXPECT_EQ(error_of(with(config, known)), "no error");
    }
    EXPECT_EQ(error_of(with(config, R"("quantization_config": {"load_in_4bit": true})")),
              "no error");
    const std::string error =
        error_of(with(config, R"("quantization_config": {"quant_method": "hqq"})"));
    EXPECT_THAT(error, AllOf(HasSubstr("dir/config.json: \"quantization_config\" is "),
                             HasSubstr("hqq"), HasSubstr("weights are quantised"),
                             HasSubstr("dequantize()"), ::testing::Not(HasSubstr("remove"))));
    EXPECT_EQ(error_of(with(config, R"("quantization_config": null)")), "no error");
  }
}

TEST(Family, RefusesAnActivationOfGpt2ThatItDoesNotCompute) {
  EXPECT_THAT(
      error_of(changed(kGpt2, "gelu_new", "relu")),
      AllOf(HasSubstr("dir/config.json"), HasSubstr("\"activation_function\" is \"relu\"")));
}

TEST(Family, RefusesRotationsThatItDoesNotCompute) {
  const std::pair<const char*, const char*> rotations[] = {
      {R"({"rope_type": "xpos", "factor": 4.0})", "\"rope_type\" is \"xpos\""},
      {R"({"type": "ntk", "factor": 2.0})", "\"type\" is \"ntk\""},
      {R"({"rope_type": "yarn", "factor": 4.0, "beta_fast": 0.5})", "\"beta_fast\" is 0.5"},
      {R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0})",
       "\"original_max_position_embeddings\" is 0"},
      {R"({"rope_type": "longrope", "short_factor": [1], "long_factor": [1, 2]})",
       "must be 2 numbers"},
      {R"({"rope_type": "longrope", "short_factor": [1, 0], "long_factor": [1, 2]})",
       "\"short_factor\" is [1,0]"},
      {R"({"type": "linear", "rope_type": "llama3", "factor": 2.0})", "\"type\" is \"linear\""},
      {R"({"rope_type": "linear"})", "\"factor\""},
      {R"({"rope_type": "linear", "factor": 0})", "\"factor\" is 0"},
      {R"({"rope_type": "linear", "factor": 2, "attention_factor": 1.5})", "attention_factor"},
      {R"({"rope_type": "default", "partial_rotary_factor": 0.25})", "partial_rotary_factor"},
      {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1})",
       "\"high_freq_factor\" is 1"},
      {R"({"rope_type": "default", "rope_theta": 123.0})", "\"rope_theta\" is 5000.0"},
      {R"({"full_attention": {"rope_type": "default"}})", "full_attention"},
  };
  for (const auto& [rotation, named] : rotations) {
    for (const char* form : {"rope_scaling", "rope_parameters"}) {
      EXPECT_THAT(error_of(with(kLlama, fmt::format("\"{}\": {}", form, rotation))),
                  AllOf(HasSubstr("dir/config.json"), HasSubstr(named)));
    }
  }
  EXPECT_THAT(error_of(with(kLlama, R"("rope_scaling": {"type": "default"},
                                       "rope_parameters": {"rope_type": "default"})")),
              HasSubstr("keep one of them"));
}

TEST(Family, RefusesWindowsThatCannotBe) {
  EXPECT_THAT(error_of(changed(kMistral, R"("sliding_window": 8)", R"("sliding_window": 0)")),
              HasSubstr("\"sliding_window\" is 0"));
  EXPECT_THAT(error_of(changed(kQwen2, R"("sliding_window": 8)", R"("sliding_window": null)")),
              HasSubstr("\"sliding_window\" is null"));
  EXPECT_THAT(error_of(with(kQwen2, R"("layer_types": [1])")), HasSubstr("a list of texts"));
}

TEST(Family, NamesFileAndFieldOfWhatIsWrong) {
  EXPECT_NE(error_of("{").find("dir/config.json: not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_of("{}").find("\"model_type\""), std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "bert"})")
                .find("builds llama, mistral, qwen2, qwen3, "
                      "mixtral, qwen3_moe, gpt2, smollm3, phi3, granite"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "llama", "vocab_size": "x"})").find("\"vocab_size\" must"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "llama", "vocab_size": -1})").find("whole number"),
            std::string::npos);
}

TEST(Family, NamesTheFileOfAFamilyThatItDoesNotBuild) {
  EXPECT_THAT(error_of(R"({"model_type": "gemma"})"),
              ::testing::StartsWith("dir/config.json: \"model_type\" is \"gemma\", a family"));
}

TEST(Family, RefusesWhatNoMachineHoldsBeforeItIsBuilt) {
  for (const char* size : {"2147483648", "1099511627776"}) {
    EXPECT_THAT(
        error_of(changed(kLlama, "\"hidden_size\": 16", fmt::format("\"hidden_size\": {}", size))),
        AllOf(HasSubstr("beyond any machine"), HasSubstr(fmt::format("hidden_size {}", size))));
    EXPECT_THAT(error_of(changed(kGpt2, "\"n_embd\": 16", fmt::format("\"n_embd\": {}", size))),
                AllOf(HasSubstr("beyond any machine"), HasSubstr(fmt::format("n_embd {}", size))));
  }
}

TEST(Family, RefusesMoreLayersThanAnybodyTrainsByTheirKey) {
  for (const char* count : {"4097", "50000000"}) {
    const std::string named = fmt::format(" is {}, and atoll builds models of at most", count);
    EXPECT_THAT(error_of(changed(kLlama, "\"num_hidden_layers\": 2",
                                 fmt::format("\"num_hidden_layers\": {}", count))),
                HasSubstr("dir/config.json: num_hidden_layers" + named));
    EXPECT_THAT(error_of(changed(kGpt2, "\"n_layer\": 2", fmt::format("\"n_layer\": {}", count))),
                HasSubstr("dir/config.json: n_layer" + named));
  }
}

TEST(Family, MoreHeadsThanTheWidthAreRefusedByTheKeyOfTheFile) {
  EXPECT_EQ(error_of(changed(kLlama, "\"num_attention_heads\": 4",
                             "\"num_attention_heads\": 4000000000")),
            "dir/config.json: \"num_attention_heads\" is 4000000000, more than hidden_size, 16");
}

TEST(Family, RefusesNestingThatWouldOverflowTheStack) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  try {
    parse_config(R"({"model_type": )" + deep + "}", "config.json");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged) << error.what();
  }
}

TEST(Family, RefusesSizesThatDoNotFitTogether) {
  const std::string heads = "\"num_attention_heads\": 4";
  EXPECT_NE(error_of(changed(kLlama, heads, "\"num_attention_heads\": 0")), "no error");
  EXPECT_NE(error_of(changed(kLlama, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"))
                .find("multiple"),
            std::string::npos);
  EXPECT_NE(error_of(changed(kLlama, "\"hidden_size\": 16", "\"hidden_size\": 12"))
                .find("head_dim (3) must be even"),
            std::string::npos);
  EXPECT_NE(error_of(changed(kLlama, "\"vocab_size\": 100", "\"vocab_size\": 1099511627776")),
            "no error");
}

}  // namespace
}  // namespace atl::nn
