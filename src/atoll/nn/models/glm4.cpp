// GLM-4-0414 (Zhipu AI 2025): Llama with biases on query, key and value, gate and up in one matrix,
// a norm behind each branch, too, and half of each head rotated, neighbour with neighbour.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", true},
    {"attn_k", "self_attn.k_proj", true},
    {"attn_v", "self_attn.v_proj", true},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_mlp_layernorm"},
};

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "glm4",
                                    {.max_positions = 131072,
                                     .num_kv_heads = 2,
                                     .head_dim = 128,
                                     .norm_eps = 0.00000015625,
                                     .rotary_part = 0.5});
  config.qkv_bias = reader.boolean("attention_bias", false);
  reader.only("mlp_bias", "false");
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  const std::int64_t width = config.heads.head_dim;
  // A new model rotates half of each head, as the published ones.
  const bool is_new = config.rotary_dim == 0 && width % 4 == 0;
  const nlohmann::json own = {
      {"attention_bias", config.qkv_bias},
      {"pad_token_id", nullptr},  // absent, transformers takes one that a small vocabulary lacks
      {"partial_rotary_factor",
       is_new ? 0.5 : static_cast<double>(config.rotary_dim) / static_cast<double>(width)}};
  return decoder_json(config, "Glm4ForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options,
                       {.attention_out_norm = "post_self_attn_layernorm",
                        .mlp_out_norm = "post_mlp_layernorm",
                        .gate_up = "mlp.gate_up_proj",
                        .rotary_pairs = ops::RotaryPairs::kNeighbours});
}

void read_gguf(GgufSettings& /*from*/, ModelConfig& config) {
  config.qkv_bias = config.attention_bias;
  config.attention_bias = false;
}

}  // namespace

Family glm4_family() {
  static constexpr const char* kAliases[] = {"glm", "glm_4"};
  return {.model_type = "glm4",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .block_norms = 4,
          .has_partial_rotation = true,
          .aliases = kAliases,
          .gguf = {.architecture = "glm4",
                   .outside = decoder_gguf_outside(),
                   .inside = kGgufInside,
                   .read = read_gguf}};
}

}  // namespace atl::nn
