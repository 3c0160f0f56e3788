// Families whose blocks have experts: what their config.json says, and the names in their files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/nn/models/family.h"

namespace atl::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char kMixtral[] = R"({
  "model_type": "mixtral", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
  "max_position_embeddings": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
  "output_router_logits": false, "router_aux_loss_coef": 0.02, "sliding_window": null,
  "rope_theta": 1000000.0, "eos_token_id": 2})";

const char kQwen3Moe[] = R"({
  "model_type": "qwen3_moe", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24,
  "max_position_embeddings": 32, "max_window_layers": 48, "use_sliding_window": false,
  "sliding_window": null, "decoder_sparse_step": 2, "mlp_only_layers": [3],
  "moe_intermediate_size": 10, "norm_topk_prob": true, "num_experts": 6,
  "num_experts_per_tok": 3, "output_router_logits": false, "router_aux_loss_coef": 0.001})";

const char kGptOss[] = R"({
  "model_type": "gpt_oss", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24,
  "max_position_embeddings": 32, "num_local_experts": 4, "experts_per_token": 2,
  "num_experts_per_tok": 2, "initial_context_length": 16, "swiglu_limit": 7.0,
  "sliding_window": 8, "attention_bias": true, "output_router_logits": false,
  "router_aux_loss_coef": 0.9, "rope_theta": 150000,
  "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 2.0, "rope_type": "yarn",
                   "original_max_position_embeddings": 16, "truncate": false}})";

std::string changed(std::string json, const std::string& from, const std::string& to) {
  const auto at = json.find(from);
  if (at == std::string::npos) ADD_FAILURE() << from << " is not in " << json;
  return json.replace(at, from.size(), to);
}

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

class Params final : public ParamVisitor {
 public:
  explicit Params(const Model& model) { model.visit(*this); }
  void param(Param& param) override {
    for (const FileTensor& file : param.files) {
      names.insert(file.name);
      shapes[file.name] = {file.rows, param.spec.shape.dim(-1)};
    }
  }
  std::set<std::string> names;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> shapes;
};

TEST(ExpertFamilies, ReadTheirExperts) {
  const ExpertShape mixtral = parse_config(kMixtral, "x").experts;
  EXPECT_EQ(mixtral.num_experts, 4);
  EXPECT_EQ(mixtral.top_k, 2);
  EXPECT_EQ(mixtral.intermediate_size, 24);
  EXPECT_TRUE(mixtral.normalize);
  EXPECT_EQ(mixtral.balance_loss, 0.02);
  EXPECT_TRUE(mixtral.has_experts(0) && mixtral.has_experts(1));
  const ExpertShape qwen = parse_config(kQwen3Moe, "x").experts;
  EXPECT_EQ(qwen.num_experts, 6);
  EXPECT_EQ(qwen.top_k, 3);
  EXPECT_EQ(qwen.intermediate_size, 10);
  EXPECT_EQ(qwen.dense_layers, std::vector<bool>({true, false, true, true}));
  // As transformers 5 writes it.
  const std::string renamed = changed(kQwen3Moe, "\"num_experts\"", "\"num_local_experts\"");
  EXPECT_EQ(parse_config(renamed, "x").experts.num_experts, 6);
}

TEST(ExpertFamilies, TakeWhatTransformersTakesForAbsentFields) {
  std::string json = kMixtral;
  for (const char* field : {R"("num_local_experts": 4, )", R"("num_experts_per_tok": 2,)",
                            R"("router_aux_loss_coef": 0.02, )", R"("rope_theta": 1000000.0, )"}) {
    json = changed(json, field, "");
  }
  const ModelConfig mixtral = parse_config(json, "x");
  EXPECT_EQ(mixtral.experts.num_experts, 8);
  EXPECT_EQ(mixtral.experts.top_k, 2);
  EXPECT_EQ(mixtral.experts.balance_loss, 0.001);
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  EXPECT_EQ(mixtral.norm_eps, 1e-5);
  EXPECT_FALSE(
      parse_config(changed(kQwen3Moe, R"("norm_topk_prob": true, )", ""), "x").experts.normalize);
}

TEST(ExpertFamilies, GptOssIsReadAsItIsPublished) {
  const ModelConfig config = parse_config(kGptOss, "x");
  EXPECT_EQ(config.windowed_layers, std::vector<bool>({true, false, true}));
  EXPECT_EQ(config.sliding_window, 8);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.rope_scaling.truncate);
  EXPECT_EQ(config.experts.intermediate_size, 24);
  EXPECT_TRUE(config.experts.normalize);
  std::string json = kGptOss;
  json.erase(json.find(", \"rope_theta\""));
  const ModelConfig plain = parse_config(json + "}", "x");
  EXPECT_EQ(plain.rope_scaling.kind, RopeScaling::Kind::kYarn) << "as transformers, where absent";
  EXPECT_EQ(plain.rope_scaling.factor, 32);
}

TEST(ExpertFamilies, GptOssRefusesOtherMathematicsByName) {
  EXPECT_THAT(error_of(changed(kGptOss, "\"swiglu_limit\": 7.0", "\"swiglu_limit\": 6.0")),
              HasSubstr("swiglu_limit"));
  EXPECT_THAT(error_of(with(kGptOss, "\"swiglu_alpha\": 1.5")), HasSubstr("swiglu_alpha"));
  EXPECT_THAT(error_of(changed(kGptOss, "\"experts_per_token\": 2", "\"experts_per_token\": 3")),
              HasSubstr("experts_per_token"));
}

TEST(ExpertFamilies, ANewModelsConfigReadsBackTheSame) {
  const std::string windowed =
      changed(changed(changed(kQwen3Moe, "\"sliding_window\": null", "\"sliding_window\": 8"),
                      "\"use_sliding_window\": false", "\"use_sliding_window\": true"),
              "\"max_window_layers\": 48, ", "");
  for (const std::string& json :
       {std::string(kMixtral), std::string(kQwen3Moe), std::string(kGptOss), windowed,
        changed(kMixtral, "\"sliding_window\": null", "\"sliding_window\": 8")}) {
    ModelConfig config = parse_config(json, "x");
    config.source_json.clear();
    const ModelConfig again = parse_config(config_json(config), "y");
    EXPECT_EQ(again.experts.num_experts, config.experts.num_experts);
    EXPECT_EQ(again.experts.top_k, config.experts.top_k);
    EXPECT_EQ(again.experts.intermediate_size, config.experts.intermediate_size);
    EXPECT_EQ(again.experts.normalize, config.experts.normalize);
    EXPECT_EQ(again.experts.balance_loss, config.experts.balance_loss);
    EXPECT_EQ(again.experts.dense_layers, config.experts.dense_layers);
    EXPECT_EQ(again.intermediate_size, config.intermediate_size);
    EXPECT_EQ(again.sliding_window, config.sliding_window);
    EXPECT_EQ(again.rope_theta, config.rope_theta);
  }
}

TEST(ExpertFamilies, ParametersCarryTheNamesOfHuggingFaceFiles) {
  const Params mixtral(*build_model(parse_config(kMixtral, "x"), {}));
  EXPECT_EQ(mixtral.names.size(), 3U + 2 * (6 + 1 + 3 * 4));
  const auto shape = [](std::int64_t rows, std::int64_t columns) {
    return std::pair{rows, columns};
  };
  EXPECT_EQ(mixtral.shapes.at("model.layers.1.block_sparse_moe.gate.weight"), shape(4, 16));
  EXPECT_EQ(mixtral.shapes.at("model.layers.1.block_sparse_moe.experts.3.w1.weight"),
            shape(24, 16));
  EXPECT_EQ(mixtral.shapes.at("model.layers.1.block_sparse_moe.experts.3.w2.weight"),
            shape(16, 24));
  EXPECT_EQ(mixtral.shapes.at("model.layers.0.block_sparse_moe.experts.0.w3.weight"),
            shape(24, 16));
  const Params qwen(*build_model(parse_config(kQwen3Moe, "x"), {}));
  EXPECT_EQ(qwen.names.size(), 3U + 3 * 11 + (8 + 1 + 3 * 6)) << "one block with experts";
  EXPECT_EQ(qwen.shapes.at("model.layers.1.mlp.experts.5.up_proj.weight"), shape(10, 16));
  EXPECT_EQ(qwen.shapes.at("model.layers.0.mlp.up_proj.weight"), shape(24, 16));
}

TEST(ExpertFamilies, ATokenCostsTheExpertsThatItGoesThrough) {
  const auto all = build_model(
      parse_config(changed(kMixtral, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 4"),
                   "x"),
      {});
  const auto half = build_model(parse_config(kMixtral, "x"), {});
  EXPECT_EQ(count_parameters(*all).total, count_parameters(*half).total);
  EXPECT_EQ(count_parameters(*all).idle, 0);
  const double expert = 3 * 16 * 24;
  EXPECT_EQ(flops_per_token(*all, 8) - flops_per_token(*half, 8), 6 * 2 * 2 * expert);
}

TEST(ExpertFamilies, RefuseFieldsThatChangeTheMathematicsByName) {
  const std::tuple<const char*, const char*, const char*> refusals[] = {
      {kMixtral, "router_jitter_noise", "0.1"},
      {kMixtral, "hidden_act", "\"gelu\""},
      {kMixtral, "attention_bias", "true"},
      {kMixtral, "num_experts", "3"},
      {kQwen3Moe, "shared_expert_intermediate_size", "12"},
      {kQwen3Moe, "num_local_experts", "7"},
      {kQwen3Moe, "layer_types", "[\"full_attention\"]"},
  };
  for (const auto& [base, field, value] : refusals) {
    EXPECT_THAT(error_of(with(base, fmt::format("\"{}\": {}", field, value))),
                AllOf(HasSubstr("dir/config.json"), HasSubstr(field)));
  }
}

TEST(ExpertFamilies, RefuseNumbersThatDoNotFitTogether) {
  const auto error = [](const char* base, const char* from, const char* to) {
    return error_of(changed(base, from, to));
  };
  EXPECT_THAT(error(kMixtral, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 5"),
              HasSubstr("\"num_experts_per_tok\" is 5, and there are 4 experts"));
  EXPECT_THAT(error(kMixtral, "\"num_local_experts\": 4", "\"num_local_experts\": 0"),
              HasSubstr("\"num_local_experts\" is 0"));
  EXPECT_THAT(error(kMixtral, "0.02", "-0.02"), HasSubstr("uneven loads"));
  EXPECT_THAT(error(kMixtral, "\"sliding_window\": null", "\"sliding_window\": 0"),
              HasSubstr("\"sliding_window\" is 0"));
  EXPECT_THAT(error(kQwen3Moe, "\"decoder_sparse_step\": 2", "\"decoder_sparse_step\": 5"),
              HasSubstr("no block has experts"));
  EXPECT_THAT(error(kQwen3Moe, "\"moe_intermediate_size\": 10", "\"moe_intermediate_size\": 0"),
              HasSubstr("intermediate size must be at least 1"));
  EXPECT_THAT(error(kQwen3Moe, "\"use_sliding_window\": false", "\"use_sliding_window\": true"),
              HasSubstr("give a width"));
  EXPECT_THAT(error(kMixtral, "\"intermediate_size\": 24", "\"intermediate_size\": 99999999999"),
              HasSubstr("beyond any machine"));
}

TEST(ExpertFamilies, RanksCannotShareSequencesWithACapacityOrMoreProductsThanThereAre) {
  const auto refusal = [](const BuildOptions& options,
                          const ModelConfig& config = parse_config(kMixtral, "x")) -> std::string {
    try {
      build_model(config, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "built";
  };
  EXPECT_THAT(refusal({.experts = {.capacity_factor = 1.5}, .context_size = 2}),
              AllOf(HasSubstr("parallel.cp = 2"), HasSubstr("moe.capacity_factor")));
  ModelConfig narrow = parse_config(kMixtral, "x");
  narrow.experts.intermediate_size = 1;
  EXPECT_THAT(refusal({.tensor_size = 2}, narrow),
              AllOf(HasSubstr("parallel.tp = 2"), HasSubstr("experts")));
}

}  // namespace
}  // namespace atl::nn
