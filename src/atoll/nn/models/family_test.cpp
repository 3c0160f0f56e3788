#include "atoll/nn/models/family.h"

#include <gtest/gtest.h>

#include <set>

namespace atl::nn {
namespace {

const char kLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100,
  "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 24, "max_position_embeddings": 32, "rms_norm_eps": 1e-06,
  "rope_theta": 5000.0, "tie_word_embeddings": false, "torch_dtype": "float32",
  "bos_token_id": 1, "eos_token_id": [2, 3], "transformers_version": "4.0"})";

const char kGpt2[] = R"({
  "model_type": "gpt2", "vocab_size": 100, "n_embd": 16, "n_layer": 2, "n_head": 4,
  "n_positions": 32, "n_ctx": 32, "activation_function": "gelu_new", "resid_pdrop": 0.1,
  "layer_norm_epsilon": 1e-05, "bos_token_id": 50256, "eos_token_id": 50256})";

std::string with(std::string json, const std::string& field) {
  return json.insert(1, field + ", ");
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

TEST(Family, ANewModelsConfigReadsBackTheSame) {
  for (const char* json : {kLlama, kGpt2}) {
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
}

TEST(Family, ReadsRotationAsTransformers5WritesIt) {
  std::string json = kLlama;
  json.replace(json.find("\"rope_theta\": 5000.0"), 20,
               R"("rope_parameters": {"rope_type": "default", "rope_theta": 700.0})");
  EXPECT_EQ(parse_config(json, "x").rope_theta, 700.0);
  json.replace(json.find("default"), 7, "yarn");
  EXPECT_NE(error_of(json).find("rope_type"), std::string::npos);
}

TEST(Family, RefusesNumbersThatCannotBe) {
  EXPECT_NE(error_of(with(kGpt2, R"("initializer_range": -0.1)")), "no error");
  std::string json = kLlama;
  json.replace(json.find("1e-06"), 5, "-5.00");
  EXPECT_NE(error_of(json).find("epsilon"), std::string::npos);
}

TEST(Family, RefusesWhatItWouldComputeWrongly) {
  EXPECT_NE(error_of(with(kLlama, R"("rope_scaling": {"type": "linear"})")).find("rope_scaling"),
            std::string::npos);
  EXPECT_NE(error_of(with(kLlama, R"("hidden_act": "gelu")")).find("hidden_act"),
            std::string::npos);
  EXPECT_NE(error_of(with(kLlama, R"("logit_softcap": 30)")).find("logit_softcap"),
            std::string::npos);
  EXPECT_NE(error_of(with(kGpt2, R"("scale_attn_weights": false)")).find("scale_attn_weights"),
            std::string::npos);
}

TEST(Family, NamesFileAndFieldOfWhatIsWrong) {
  EXPECT_NE(error_of("{").find("dir/config.json is not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_of("{}").find("\"model_type\""), std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "bert"})").find("llama, gpt2"), std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "llama", "vocab_size": "x"})").find("\"vocab_size\" must"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "llama", "vocab_size": -1})").find("whole number"),
            std::string::npos);
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
  const auto changed = [](std::string json, const std::string& from, const std::string& to) {
    return json.replace(json.find(from), from.size(), to);
  };
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
