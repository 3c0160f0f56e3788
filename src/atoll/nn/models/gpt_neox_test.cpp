// config.json of GPT-NeoX and Pythia, and the block that it describes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"

namespace atl::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// As EleutherAI's uploads have it.
const std::string kPythia = R"({
  "model_type": "gpt_neox", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 32,
  "hidden_act": "gelu", "rotary_emb_base": 5000, "rotary_pct": 0.25, "layer_norm_eps": 1e-05,
  "use_parallel_residual": true, "tie_word_embeddings": false, "bos_token_id": 0,
  "eos_token_id": 0})";

std::string with(std::string json, const std::string& field) {
  return json.insert(1, field + ", ");
}

std::string changed(std::string json, const std::string& from, const std::string& to) {
  const auto at = json.find(from);
  if (at == std::string::npos) ADD_FAILURE() << from << " is not in " << json;
  return json.replace(at, from.size(), to);
}

// Without fields that are not last in their lines.
std::string without(std::string json, std::initializer_list<const char*> fields) {
  for (const char* field : fields) {
    json = std::regex_replace(json, std::regex(fmt::format("\"{}\": [^,]*, ", field)), "");
  }
  return json;
}

std::string error_of(const std::string& json) {
  try {
    parse_config(json, "dir/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

TEST(GptNeox, ReadsTheShapeOfAPythia) {
  const ModelConfig config = parse_config(kPythia, "x");
  EXPECT_EQ(config.heads.head_dim, 8);
  EXPECT_EQ(config.heads.num_kv_heads, 4);
  EXPECT_EQ(config.rotary_dim, 2);
  EXPECT_EQ(config.rope_theta, 5000);
  EXPECT_EQ(config.eos_token, 0);
  EXPECT_TRUE(config.attention_bias && config.mlp_bias);
  EXPECT_EQ(config_json(config), kPythia) << "what was read goes back unchanged";
  const ModelConfig bare =
      parse_config(without(kPythia, {"rotary_pct", "rotary_emb_base", "hidden_act"}), "x");
  EXPECT_EQ(bare.rotary_dim, 2) << "what transformers takes it for";
  EXPECT_EQ(bare.rope_theta, 10000);
  EXPECT_EQ(bare.activation, "gelu");
}

TEST(GptNeox, ReadsRotationAsTransformers5WritesIt) {
  const std::string later = R"("rope_parameters": {"rope_type": "default", "rope_theta": 700.0,
      "partial_rotary_factor": 0.5})";
  const ModelConfig config =
      parse_config(with(without(kPythia, {"rotary_pct", "rotary_emb_base"}), later), "x");
  EXPECT_EQ(config.rotary_dim, 4);
  EXPECT_EQ(config.rope_theta, 700);
  EXPECT_THAT(error_of(with(without(kPythia, {"rotary_pct"}), later)),
              AllOf(HasSubstr("\"rotary_emb_base\""), HasSubstr("700")));
  EXPECT_THAT(error_of(with(without(kPythia, {"rotary_emb_base"}), later)),
              AllOf(HasSubstr("\"rotary_pct\""), HasSubstr("4 of 8")));
}

TEST(GptNeox, ANewModelsConfigReadsBackTheSame) {
  const std::string other = changed(changed(kPythia, "\"gelu\"", "\"gelu_fast\""),
                                    "\"rotary_pct\": 0.25", "\"rotary_pct\": 1.0");
  for (const std::string& json : {kPythia, other}) {
    ModelConfig config = parse_config(json, "x");
    config.source_json.clear();
    const ModelConfig again = parse_config(config_json(config), "y");
    EXPECT_EQ(again.heads.qkv_width(), config.heads.qkv_width());
    EXPECT_EQ(again.intermediate_size, config.intermediate_size);
    EXPECT_EQ(again.max_positions, config.max_positions);
    EXPECT_EQ(again.rope_theta, config.rope_theta);
    EXPECT_EQ(again.rotary_dim, config.rotary_dim);
    EXPECT_EQ(again.norm_eps, config.norm_eps);
    EXPECT_EQ(again.activation, config.activation);
    EXPECT_EQ(again.attention_bias, config.attention_bias);
  }
}

TEST(GptNeox, ConfigJsonSaysWhetherBranchesAreParallel) {
  const auto num_kept = [](const std::string& json) {
    const auto model = build_model(parse_config(json, "x"), {});
    return model->stages[1]->plan({Dtype::kF32, {1, 4, 32}}).kept.size();
  };
  const std::string sequential =
      changed(kPythia, R"("use_parallel_residual": true)", R"("use_parallel_residual": false)");
  EXPECT_EQ(num_kept(sequential), num_kept(kPythia) + 1) << "what the MLP reads";
  EXPECT_EQ(num_kept(without(kPythia, {"use_parallel_residual"})), num_kept(kPythia));
}

class Names final : public ParamVisitor {
 public:
  void param(Param& param) override {
    for (const FileTensor& file : param.files) names.insert(file.name);
  }
  std::set<std::string> names;
};

TEST(GptNeox, ParametersCarryTheNamesOfHuggingFaceFiles) {
  Names pythia;
  build_model(parse_config(kPythia, "x"), {})->visit(pythia);
  EXPECT_EQ(pythia.names.size(), 4U + 2 * 12);
  EXPECT_TRUE(pythia.names.contains("gpt_neox.layers.1.attention.query_key_value.bias"));
  EXPECT_TRUE(pythia.names.contains("embed_out.weight"));
  Names bare;
  build_model(parse_config(with(kPythia, "\"attention_bias\": false"), "x"), {})->visit(bare);
  EXPECT_EQ(bare.names.size(), 4U + 2 * 10);
}

TEST(GptNeox, RefusesByNameWhatItDoesNotCompute) {
  for (const char* known : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"}) {
    EXPECT_EQ(error_of(changed(kPythia, "\"gelu\"", fmt::format("\"{}\"", known))), "no error");
  }
  EXPECT_THAT(error_of(changed(kPythia, "\"gelu\"", "\"relu\"")),
              AllOf(HasSubstr("dir/config.json"), HasSubstr("\"hidden_act\""), HasSubstr("relu")));
  EXPECT_THAT(error_of(with(kPythia, "\"sliding_window\": 8")), HasSubstr("\"sliding_window\""));
  EXPECT_THAT(error_of(with(kPythia, "\"num_key_value_heads\": 2")),
              HasSubstr("\"num_key_value_heads\""));
  EXPECT_THAT(error_of(changed(kPythia, "\"rotary_pct\": 0.25", "\"rotary_pct\": 0.2")),
              AllOf(HasSubstr("\"rotary_pct\""), HasSubstr("whole pairs")));
  EXPECT_THAT(
      error_of(changed(kPythia, "\"num_attention_heads\": 4", "\"num_attention_heads\": 5")),
      AllOf(HasSubstr("hidden_size (32)"), HasSubstr("num_attention_heads (5)")));
}

}  // namespace
}  // namespace atl::nn
