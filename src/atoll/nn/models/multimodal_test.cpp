// The language models within multimodal files. tests/golden/uploads/multimodal.json has the
// config.json of uploads, and tests/oracle/uploads.py their logits.

#include "atoll/nn/models/multimodal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"

namespace atl::nn {
namespace {

TEST(Multimodal, TakesDefaultsThatTheFileLeavesOut) {
  const auto part = language_part(
      R"({"model_type": "llava", "eos_token_id": 2, "torch_dtype": "float16",
          "image_token_index": 5, "vision_config": {},
          "text_config": {"model_type": "llama", "vocab_size": 32064}})",
      "x");
  ASSERT_TRUE(part);
  EXPECT_FALSE(part->says_tied_head);
  const auto json = nlohmann::json::parse(part->config_json);
  EXPECT_EQ(json["architectures"], nlohmann::json({"LlamaForCausalLM"}));
  EXPECT_EQ(json["torch_dtype"], "float16");
  EXPECT_FALSE(json.contains("vision_config"));
  const ModelConfig config = parse_config(part->config_json, "x");
  EXPECT_EQ(config.vocab_size, 32064);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.intermediate_size, 11008);
  EXPECT_EQ(config.heads.num_kv_heads, 32);
  EXPECT_EQ(config.eos_token, 2);
  EXPECT_EQ(config.source_json, part->config_json) << "what is written is the language model's own";
  EXPECT_TRUE(parse_config(with_tied_head(part->config_json, true), "x").tie_embeddings);
}

TEST(Multimodal, AHeadIsTiedWhereEitherPartSaysSo) {
  for (const auto& [whole, text, tied] : std::vector<std::tuple<std::string, std::string, bool>>{
           {"true", "false", true}, {"false", "true", true}, {"false", "false", false}}) {
    const auto part =
        language_part(R"({"model_type": "qwen2_vl", "tie_word_embeddings": )" + whole +
                          R"(, "text_config": {"tie_word_embeddings": )" + text + "}}",
                      "x");
    EXPECT_TRUE(part->says_tied_head);
    EXPECT_EQ(parse_config(part->config_json, "x").tie_embeddings, tied);
  }
}

TEST(Multimodal, PositionsOfTextArePlainOnes) {
  for (const char* rope :
       {R"("rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "rope_theta": 5)",
        R"("rope_parameters": {"rope_type": "default", "mrope_section": [1], "rope_theta": 5})"}) {
    const auto part = language_part(
        R"({"model_type": "qwen2_5_vl", "vision_config": {}, )" + std::string(rope) + "}", "x");
    const ModelConfig config = parse_config(part->config_json, "x");
    EXPECT_EQ(config.rope_theta, 5);
    EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
    EXPECT_TRUE(config.qkv_bias);
  }
}

TEST(Multimodal, OthersAreNone) {
  EXPECT_FALSE(language_part(R"({"model_type": "llama"})", "x"));
  EXPECT_FALSE(language_part(R"({"model_type": "mllama", "text_config": {}})", "x"));
  EXPECT_FALSE(language_part("{}", "x"));
  EXPECT_THROW(language_part("[]", "x"), Error);
  EXPECT_THROW(language_part(R"({"model_type": "llava", "text_config": 5})", "x"), Error);
}

TEST(Multimodal, TensorsHaveTheLanguageModelsNames) {
  for (const auto& [theirs, ours] : std::map<std::string, std::string>{
           {"language_model.model.layers.0.mlp.up_proj.weight",
            "model.layers.0.mlp.up_proj.weight"},
           {"model.language_model.norm.weight", "model.norm.weight"},
           {"model.text_model.embed_tokens.weight", "model.embed_tokens.weight"},
           {"language_model.lm_head.weight", "lm_head.weight"},
           {"lm_head.weight", "lm_head.weight"},
           {"model.layers.1.input_layernorm.weight", "model.layers.1.input_layernorm.weight"},
           {"visual.blocks.0.attn.qkv.weight", ""},
           {"model.visual.patch_embed.proj.weight", ""},
           {"vision_tower.vision_model.post_layernorm.weight", ""},
           {"model.multi_modal_projector.mm_soft_emb_norm.weight", ""},
           {"model.connector.modality_projection.proj.weight", ""},
           {"image_newline", ""},
           {"nobody.knows.weight", "nobody.knows.weight"}}) {
    EXPECT_EQ(language_tensor(theirs), ours);
  }
}

}  // namespace
}  // namespace atl::nn
