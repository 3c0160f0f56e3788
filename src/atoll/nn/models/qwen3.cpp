// Qwen3 (Yang et al. 2025): Qwen2 without its biases, a norm of each query and key head, heads of
// any width.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"}, {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "qwen3",
                                    {.max_positions = 32768, .num_kv_heads = 32, .head_dim = 128});
  config.qk_norm = true;
  config.attention_bias = reader.boolean("attention_bias", false);
  read_windows_by_layer(reader, config);
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  nlohmann::json own = nlohmann::json::parse(windows_by_layer_json(config));
  own["attention_bias"] = config.attention_bias;
  return decoder_json(config, "Qwen3ForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  ModelConfig qwen3 = config;
  qwen3.qk_norm = true;
  qwen3.mlp_bias = false;
  return build_decoder(qwen3, options);
}

}  // namespace

Family qwen3_family() {
  return {
      .model_type = "qwen3",
      .parse = parse,
      .to_json = to_json,
      .build = build,
      .gguf = {.architecture = "qwen3", .outside = decoder_gguf_outside(), .inside = kGgufInside}};
}

}  // namespace atl::nn
