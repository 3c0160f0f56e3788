// DeepSeek's families: what their config.json says, and the names and shapes in their files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "atoll/nn/models/deepseek/latent_parts.h"
#include "atoll/nn/models/family.h"

namespace atl::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

nlohmann::json v3() {
  return nlohmann::json::parse(R"({
    "model_type": "deepseek_v3", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 32, "q_lora_rank": 10, "kv_lora_rank": 7, "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 8, "n_shared_experts": 2,
    "num_experts_per_tok": 3, "moe_intermediate_size": 9, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "n_group": 4, "topk_group": 2, "topk_method": "noaux_tc",
    "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 1, "aux_loss_alpha": 0.001, "seq_aux": true, "ep_size": 1,
    "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 32,
    "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 8}})");
}

nlohmann::json v2() {
  nlohmann::json json = v3();
  json.update({{"model_type", "deepseek_v2"},
               {"topk_method", "group_limited_greedy"},
               {"scoring_func", "softmax"},
               {"norm_topk_prob", false}});
  json.erase("num_nextn_predict_layers");
  return json;
}

std::string with(nlohmann::json json, const char* field, const nlohmann::json& value) {
  json[field] = value;
  return json.dump();
}

std::string error_of(const std::string& json) {
  try {
    parse_config(json, "dir/config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::map<std::string, std::string> shapes_of(const ModelConfig& config) {
  struct Params final : ParamVisitor {
    void param(Param& param) override {
      for (const FileTensor& file : param.files) {
        shapes[file.name] = param.spec.shape.rank() == 1
                                ? fmt::format("{}", file.rows)
                                : fmt::format("{} {}", file.rows, param.spec.shape.dim(1));
      }
    }
    std::map<std::string, std::string> shapes;
  } params;
  build_model(config, {})->visit(params);
  return params.shapes;
}

TEST(Deepseek, ConfigJsonSaysTheShape) {
  const ModelConfig config = parse_config(v3().dump(), "x");
  EXPECT_EQ(config.heads.num_kv_heads, 4);
  EXPECT_EQ(config.heads.head_dim, 10);
  EXPECT_EQ(config.rotary_dim, 4);
  EXPECT_EQ(config.experts.dense_layers, (std::vector<bool>{true, false, false}));
  EXPECT_EQ(config.experts.balance_loss, 0);
  const double growth = 0.1 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(config.attention_scale, growth * growth / std::sqrt(10.0));
  EXPECT_DOUBLE_EQ(config.rope_scaling.attention_factor, 1);
  EXPECT_EQ(deepseek_latent(config).value_dim, 5);
  // Values that are wider than keys make the heads in memory as wide.
  EXPECT_EQ(parse_config(with(v3(), "v_head_dim", 12), "x").heads.head_dim, 12);
  EXPECT_TRUE(parse_config(v3().dump(), "x").experts.normalize);
  EXPECT_FALSE(parse_config(v2().dump(), "x").experts.normalize);
}

TEST(Deepseek, FilesHaveTheNamesAndShapesOfTransformers) {
  const auto shapes = shapes_of(parse_config(v3().dump(), "x"));
  const std::string attention = "model.layers.1.self_attn.", mlp = "model.layers.1.mlp.";
  const std::map<std::string, std::string> wanted = {
      {attention + "q_a_proj.weight", "10 16"},
      {attention + "q_a_layernorm.weight", "10"},
      {attention + "q_b_proj.weight", "40 10"},
      {attention + "kv_a_proj_with_mqa.weight", "11 16"},
      {attention + "kv_a_layernorm.weight", "7"},
      {attention + "kv_b_proj.weight", "44 7"},
      {attention + "o_proj.weight", "16 20"},
      {mlp + "gate.weight", "8 16"},
      {mlp + "gate.e_score_correction_bias", "8"},
      {mlp + "shared_experts.gate_proj.weight", "18 16"},
      {mlp + "shared_experts.down_proj.weight", "16 18"},
      {mlp + "experts.7.up_proj.weight", "9 16"},
      {"model.layers.0.mlp.gate_proj.weight", "24 16"}};
  for (const auto& [name, shape] : wanted) {
    ASSERT_TRUE(shapes.contains(name)) << name;
    EXPECT_EQ(shapes.at(name), shape) << name;
  }
  EXPECT_FALSE(shapes.contains("model.layers.0.mlp.gate.weight"));
  const auto lite = shapes_of(parse_config(with(v2(), "q_lora_rank", nullptr), "x"));
  EXPECT_EQ(lite.at(attention + "q_proj.weight"), "40 16");
  EXPECT_FALSE(lite.contains(mlp + "gate.e_score_correction_bias"));
}

TEST(Deepseek, ANewModelHasAConfigJsonOfTheSameShape) {
  for (const nlohmann::json& json : {v2(), v3()}) {
    ModelConfig config = parse_config(json.dump(), "x");
    const ModelConfig again = parse_config(config_json(config), "x");
    EXPECT_EQ(shapes_of(again), shapes_of(config));
    config.source_json.clear();
    const ModelConfig made = parse_config(config_json(config), "new");
    EXPECT_EQ(made.heads.head_dim, config.heads.head_dim);
    EXPECT_EQ(made.rotary_dim, config.rotary_dim);
    EXPECT_NEAR(made.attention_scale, config.attention_scale, 1e-15);
    EXPECT_EQ(made.experts.dense_layers, config.experts.dense_layers);
  }
}

TEST(Deepseek, ARecipeNeedsOnlyTheWidthOfHeads) {
  for (const char* family : {"deepseek_v2", "deepseek_v3"}) {
    ModelConfig config;
    config.family = family;
    config.vocab_size = 50;
    config.hidden_size = 16;
    config.num_layers = 2;
    config.heads = {2, 2, 12};
    config.intermediate_size = 24;
    config.max_positions = 32;
    config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 10};
    const ModelConfig made = parse_config(config_json(config), "model.*");
    EXPECT_EQ(made.heads.head_dim, 12);
    EXPECT_EQ(made.rotary_dim, 4);
    EXPECT_EQ(made.experts.dense_layers, (std::vector<bool>{true, false}));
    EXPECT_EQ(deepseek_latent(made).value_dim, 8);
    EXPECT_GT(shapes_of(made).size(), 10U);
  }
}

TEST(Deepseek, RefusesWhatItsLayersDoNotCompute) {
  EXPECT_THAT(error_of(with(v3(), "topk_method", "greedy")),
              AllOf(HasSubstr("dir/config.json"), HasSubstr("topk_method")));
  EXPECT_THAT(error_of(with(v2(), "topk_method", "noaux_tc")), HasSubstr("group_limited_greedy"));
  EXPECT_THAT(error_of(with(v3(), "scoring_func", "softmax")), HasSubstr("scoring_func"));
  EXPECT_THAT(error_of(with(v2(), "norm_topk_prob", true)), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(error_of(with(v3(), "moe_layer_freq", 2)), HasSubstr("moe_layer_freq"));
  EXPECT_THAT(error_of(with(v3(), "first_k_dense_replace", 3)), HasSubstr("none of the 3 blocks"));
  EXPECT_THAT(error_of(with(v3(), "n_group", 3)), HasSubstr("8 experts"));
  EXPECT_THAT(error_of(with(v3(), "topk_group", 1)), HasSubstr("a token needs 3 experts"));
  EXPECT_THAT(error_of(with(v3(), "n_shared_experts", nullptr)), HasSubstr("n_shared_experts"));
  EXPECT_THAT(error_of(with(v3(), "num_key_value_heads", 2)), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(error_of(with(v3(), "qk_rope_head_dim", 3)), HasSubstr("even"));
  EXPECT_THAT(error_of(with(v3(), "kv_lora_rank", 0)), HasSubstr("kv_lora_rank"));
  EXPECT_THAT(error_of(with(v3(), "qk_head_dim", 11)), HasSubstr("qk_head_dim"));
  EXPECT_THAT(error_of(with(v2(), "mlp_bias", true)), HasSubstr("mlp_bias"));
  EXPECT_THAT(error_of(with(v2(), "rope_interleave", false)), HasSubstr("rope_interleave"));
}

TEST(Deepseek, KimiK2IsReadAsV3AndGoesBackAsItWas) {
  const std::string json = with(v3(), "model_type", "kimi_k2");
  const ModelConfig config = parse_config(json, "x");
  EXPECT_EQ(config.family, "deepseek_v3");
  EXPECT_EQ(config_json(config), json);
}

TEST(Deepseek, ModelsAreBuiltForACpu) {
  try {
    build_model(parse_config(v3().dump(), "x"), {.device = DeviceKind::kCuda});
    ADD_FAILURE() << "built";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--device=cpu"));
  }
}

}  // namespace
}  // namespace atl::nn
