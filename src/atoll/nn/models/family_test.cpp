#include "atoll/nn/models/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numbers>
#include <regex>
#include <set>

#include "atoll/nn/models/rope.h"
#include "atoll/nn/models/sizes.h"

namespace atl::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char kLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100,
  "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 24, "max_position_embeddings": 32, "rms_norm_eps": 1e-06,
  "rope_theta": 5000.0, "tie_word_embeddings": false, "torch_dtype": "float32",
  "bos_token_id": 1, "eos_token_id": [2, 3], "transformers_version": "4.0"})";

const char kGpt2[] = R"({
  "model_type": "gpt2", "vocab_size": 100, "n_embd": 16, "n_layer": 2, "n_head": 4,
  "n_positions": 32, "n_ctx": 32, "activation_function": "gelu_new", "resid_pdrop": 0.1,
  "bos_token_id": 98, "eos_token_id": 98, "layer_norm_epsilon": 1e-05})";

const char kMistral[] = R"({
  "model_type": "mistral", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24,
  "max_position_embeddings": 32, "rms_norm_eps": 1e-05, "sliding_window": 8, "eos_token_id": 2})";

const char kQwen2[] = R"({
  "model_type": "qwen2", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
  "max_position_embeddings": 32, "use_sliding_window": true, "sliding_window": 8,
  "max_window_layers": 1, "tie_word_embeddings": true, "eos_token_id": 2})";

const char kQwen3[] = R"({
  "model_type": "qwen3", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24,
  "max_position_embeddings": 32, "attention_bias": false, "use_sliding_window": false,
  "sliding_window": null, "rope_theta": 1000000, "eos_token_id": 2})";

const char* const kAll[] = {kLlama, kMistral, kQwen2, kQwen3, kGpt2};

std::string with(std::string json, const std::string& field) {
  return json.insert(1, field + ", ");
}

std::string changed(std::string json, const std::string& from, const std::string& to) {
  const auto at = json.find(from);
  if (at == std::string::npos) ADD_FAILURE() << from << " is not in " << json;
  return json.replace(at, from.size(), to);
}

// Without a field that is not the last one.
std::string without(const std::string& json, const std::string& field) {
  return std::regex_replace(json, std::regex("\"" + field + R"(": (\[[^\]]*\]|[^,]*), )"), "");
}

std::string error_of(const std::string& json) {
  try {
    parse_config(json, "dir/config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class Names final : public ParamVisitor {
 public:
  void param(Param& param) override {
    for (const FileTensor& file : param.files) names.insert(file.name);
  }
  std::set<std::string> names;
};

TEST(Family, ReadsTheShapeOfALlama) {
  const ModelConfig config = parse_config(kLlama, "x");
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.heads.head_dim, 4);
  EXPECT_EQ(config.heads.num_kv_heads, 2);
  EXPECT_EQ(config.rope_theta, 5000.0);
  EXPECT_EQ(config.eos_token, 2);
  EXPECT_EQ(config_json(config), kLlama) << "what was read goes back unchanged";
}

TEST(Family, ReadsTheShapeOfAGpt2) {
  const ModelConfig config = parse_config(kGpt2, "x");
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_EQ(config.heads.num_kv_heads, 4);
  EXPECT_TRUE(config.tie_embeddings);
}

TEST(Family, ReadsWhichLayersHaveAWindow) {
  const ModelConfig mistral = parse_config(kMistral, "x");
  EXPECT_EQ(mistral.window(0), 8);
  EXPECT_EQ(mistral.window(2), 8);
  const ModelConfig qwen2 = parse_config(kQwen2, "x");
  EXPECT_EQ(qwen2.window(0), 0);
  EXPECT_EQ(qwen2.window(1), 8);
  EXPECT_EQ(parse_config(kQwen3, "x").sliding_window, 0);
  const ModelConfig listed = parse_config(
      with(kQwen2,
           R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention"])"),
      "x");
  EXPECT_EQ(listed.windowed_layers, std::vector<bool>({true, false, true}));
  const ModelConfig none =
      parse_config(changed(kMistral, R"("sliding_window": 8)", R"("sliding_window": null)"), "x");
  EXPECT_EQ(none.window(0), 0);
  const ModelConfig absent = parse_config(changed(kMistral, R"("sliding_window": 8, )", ""), "x");
  EXPECT_EQ(absent.window(0), 4096) << "what transformers takes it for";
}

TEST(Family, ReadsBothFormsOfScaledRotation) {
  const std::string fields = R"("factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 16)";
  const ModelConfig old_form =
      parse_config(with(kLlama, R"("rope_scaling": {"rope_type": "llama3", )" + fields + "}"), "x");
  const ModelConfig new_form = parse_config(
      with(changed(kLlama, R"("rope_theta": 5000.0,)", ""),
           R"("rope_parameters": {"rope_theta": 5000.0, "rope_type": "llama3", )" + fields + "}"),
      "x");
  for (const ModelConfig& config : {old_form, new_form}) {
    EXPECT_EQ(config.rope_theta, 5000.0);
    EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLlama3);
    EXPECT_EQ(config.rope_scaling.factor, 8);
    EXPECT_EQ(config.rope_scaling.original_max_positions, 16);
  }
  const ModelConfig linear =
      parse_config(with(kQwen3, R"("rope_scaling": {"type": "linear", "factor": 2})"), "x");
  EXPECT_EQ(linear.rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(linear.rope_scaling.factor, 2);
}

TEST(Rope, Llama3StretchesSlowFrequenciesAndKeepsFastOnes) {
  const RopeScaling scaling = {.kind = RopeScaling::Kind::kLlama3,
                               .factor = 8,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_positions = 100};
  const std::vector<float> plain = rope_frequencies(64, 10000, {});
  const std::vector<float> stretched = rope_frequencies(64, 10000, scaling);
  int blended = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 25) {
      EXPECT_EQ(stretched[i], plain[i]);
    } else if (wavelength > 100) {
      EXPECT_EQ(stretched[i], plain[i] / 8);
    } else {
      ++blended;
      EXPECT_GT(stretched[i], plain[i] / 8);
      EXPECT_LT(stretched[i], plain[i]);
    }
  }
  EXPECT_GT(blended, 0);
}

TEST(Family, ANewModelsConfigReadsBackTheSame) {
  const std::string stretched = with(kLlama, R"("rope_scaling": {"rope_type": "llama3",
      "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
      "original_max_position_embeddings": 16})");
  const std::string mixed =
      with(kQwen3, R"("layer_types": ["full_attention", "full_attention", "full_attention"])");
  std::vector<std::string> configs(std::begin(kAll), std::end(kAll));
  configs.insert(configs.end(), {stretched, mixed});
  for (const std::string& json : configs) {
    ModelConfig config = parse_config(json, "x");
    config.source_json.clear();
    const ModelConfig again = parse_config(config_json(config), "y");
    EXPECT_EQ(again.hidden_size, config.hidden_size);
    EXPECT_EQ(again.heads.qkv_width(), config.heads.qkv_width());
    EXPECT_EQ(again.intermediate_size, config.intermediate_size);
    EXPECT_EQ(again.max_positions, config.max_positions);
    EXPECT_EQ(again.rope_theta, config.rope_theta);
    EXPECT_EQ(again.norm_eps, config.norm_eps);
    EXPECT_EQ(again.tie_embeddings, config.tie_embeddings);
    EXPECT_EQ(again.eos_token, config.eos_token);
    EXPECT_EQ(again.rope_scaling.kind, config.rope_scaling.kind);
    EXPECT_EQ(again.rope_scaling.original_max_positions,
              config.rope_scaling.original_max_positions);
    EXPECT_EQ(again.sliding_window, config.sliding_window);
    EXPECT_EQ(again.windowed_layers, config.windowed_layers);
  }
}

TEST(Family, ParametersCarryTheNamesOfHuggingFaceFiles) {
  Names llama;
  build_model(parse_config(kLlama, "x"), {})->visit(llama);
  EXPECT_EQ(llama.names.size(), 3U + 2 * 9);
  EXPECT_TRUE(llama.names.contains("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_TRUE(llama.names.contains("lm_head.weight"));
  Names gpt2;
  build_model(parse_config(kGpt2, "x"), {})->visit(gpt2);
  EXPECT_EQ(gpt2.names.size(), 4U + 2 * 12);
  EXPECT_TRUE(gpt2.names.contains("transformer.h.0.attn.c_attn.weight"));
  Names qwen2;
  build_model(parse_config(kQwen2, "x"), {})->visit(qwen2);
  EXPECT_EQ(qwen2.names.size(), 2U + 3 * 12) << "biases of q, k and v, none of o";
  EXPECT_TRUE(qwen2.names.contains("model.layers.2.self_attn.v_proj.bias"));
  Names qwen3;
  build_model(parse_config(kQwen3, "x"), {})->visit(qwen3);
  EXPECT_EQ(qwen3.names.size(), 3U + 3 * 11);
  EXPECT_TRUE(qwen3.names.contains("model.layers.2.self_attn.q_norm.weight"));
}

TEST(Family, AWindowCountsForTheKeysThatAreSeen) {
  // With a window of 8 of 16 tokens, queries see 1, 2, ... 7, 8, 8, ...: 100 keys where 136 are
  // without; the formula's continuous form says 96 and 128.
  const auto windowed = build_model(parse_config(kMistral, "x"), {});
  const auto whole = build_model(
      parse_config(changed(kMistral, R"("sliding_window": 8)", R"("sliding_window": null)"), "x"),
      {});
  const double width = 4 * 6;
  EXPECT_EQ(flops_per_token(*whole, 16) - flops_per_token(*windowed, 16),
            12 * 3 * width * (128 - 96) / 16);
  EXPECT_EQ(flops_per_token(*whole, 8), flops_per_token(*windowed, 8));
}

TEST(Family, ReadsRotationAsTransformers5WritesIt) {
  std::string json = kLlama;
  json.replace(json.find("\"rope_theta\": 5000.0"), 20,
               R"("rope_parameters": {"rope_type": "default", "rope_theta": 700.0})");
  EXPECT_EQ(parse_config(json, "x").rope_theta, 700.0);
  json.replace(json.find("default"), 7, "xpos");
  EXPECT_NE(error_of(json).find("rope_type"), std::string::npos);
}

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

// It stretches nothing up to max_position_embeddings, and longer contexts are refused elsewhere.
TEST(Family, DynamicRotationIsTheDefaultUpToTheLongestContext) {
  const ModelConfig config =
      parse_config(with(kLlama, R"("rope_scaling": {"type": "dynamic", "factor": 4.0})"), "x");
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(rope_frequencies(8, 5000, config.rope_scaling), rope_frequencies(8, 5000, {}));
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

TEST(Family, NothingOfAFileIsIgnored) {
  using namespace std::string_literals;
  EXPECT_THAT(error_of(std::string(kLlama) + "\0{\"vocab_size\": 7}"s), HasSubstr("a NUL byte"));
  EXPECT_THAT(error_of(with(kLlama, R"("vocab_size": 7)")),
              AllOf(HasSubstr("dir/config.json"), HasSubstr("\"vocab_size\" stands there twice")));
}

TEST(Family, IdsOfTokensAreReadPastWhereTheVocabularyHasNone) {
  for (const char* config : {kLlama, kGpt2}) {
    for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
                              "sep_token_id", "decoder_start_token_id"}) {
      const std::string text = without(config, field);
      const auto changed = [&](const char* id) {
        return with(text, fmt::format("\"{}\": {}", field, id));
      };
      for (const char* id : {"-7", "[-2]", "1.0", "true", "[]", "\"2\""}) {
        EXPECT_THAT(error_of(changed(id)),
                    AllOf(HasSubstr("dir/config.json"), HasSubstr(field),
                          HasSubstr("must be a token's id, a list of them, or null")));
      }
      for (const char* id : {"0", "99", "null", "-1", "[1, 99]", "100", "[1, 100]", "50256"}) {
        EXPECT_EQ(error_of(changed(id)), "no error") << id;
      }
    }
    const auto eos = [&](const char* id) {
      const std::string text =
          with(without(config, "eos_token_id"), fmt::format("\"eos_token_id\": {}", id));
      return parse_config(text, "dir/config.json").eos_token;
    };
    EXPECT_EQ(eos("99"), 99);
    EXPECT_EQ(eos("[50256, 7, 8]"), 7);
    EXPECT_EQ(eos("50256"), -1);
    EXPECT_EQ(eos("18446744073709551615"), -1);
  }
}

TEST(Family, SizesHaveTheNamesOfTheFile) {
  EXPECT_EQ(error_of(with(kGpt2, "\"n_inner\": 0")),
            "dir/config.json: n_inner must be at least 1, not 0");
  EXPECT_THAT(error_of(changed(kGpt2, "\"n_layer\": 2", "\"n_layer\": 0")),
              HasSubstr("n_layer must be at least 1"));
  EXPECT_THAT(error_of(changed(kLlama, "\"intermediate_size\": 24", "\"intermediate_size\": 0")),
              HasSubstr("intermediate_size must be at least 1"));
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

TEST(Family, LeastParametersAreABoundThatHoldsMostOfAModel) {
  for (const char* text : {kLlama, kGpt2}) {
    const ModelConfig config = parse_config(text, "config.json");
    const auto built =
        static_cast<double>(count_parameters(*build_model(config, {.max_positions = 1})).total);
    EXPECT_LE(least_parameters(config), built);
    EXPECT_GT(least_parameters(config), built / 2);
  }
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
