#include "atoll/nn/models/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numbers>
#include <regex>
#include <set>

#include "atoll/nn/models/family_testing.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/models/sizes.h"

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
using family_testing::without;
using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kAll[] = {kLlama, kMistral, kQwen2, kQwen3, kGpt2};

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

// It stretches nothing up to max_position_embeddings, and longer contexts are refused elsewhere.
TEST(Family, DynamicRotationIsTheDefaultUpToTheLongestContext) {
  const ModelConfig config =
      parse_config(with(kLlama, R"("rope_scaling": {"type": "dynamic", "factor": 4.0})"), "x");
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(rope_frequencies(8, 5000, config.rope_scaling), rope_frequencies(8, 5000, {}));
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

TEST(Family, LeastParametersAreABoundThatHoldsMostOfAModel) {
  for (const char* text : {kLlama, kGpt2}) {
    const ModelConfig config = parse_config(text, "config.json");
    const auto built =
        static_cast<double>(count_parameters(*build_model(config, {.max_positions = 1})).total);
    EXPECT_LE(least_parameters(config), built);
    EXPECT_GT(least_parameters(config), built / 2);
  }
}

}  // namespace
}  // namespace atl::nn
