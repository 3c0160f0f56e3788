// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on query, key and value, and perhaps a
// window in some of the layers.

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},     {"attn_q", "self_attn.q_proj", true},
    {"attn_k", "self_attn.k_proj", true}, {"attn_v", "self_attn.v_proj", true},
    {"attn_output", "self_attn.o_proj"},  {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},        {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config =
      read_decoder(reader, origin, "qwen2", {.max_positions = 32768, .num_kv_heads = 32});
  config.qkv_bias = true;
  read_windows_by_layer(reader, config);
  reader.only("use_mrope", "false");
  // For servers that cut longer texts into chunks; transformers passes over it.
  reader.ignore({"dual_chunk_attention_config"});
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  return decoder_json(config, "Qwen2ForCausalLM", windows_by_layer_json(config));
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  ModelConfig qwen2 = config;
  qwen2.qkv_bias = true;
  qwen2.attention_bias = qwen2.mlp_bias = false;
  return build_decoder(qwen2, options);
}

}  // namespace

Family qwen2_family() {
  static constexpr const char* kAliases[] = {"qwen", "qwen2.5", "qwen_2.5"};
  return {
      .model_type = "qwen2",
      .parse = parse,
      .to_json = to_json,
      .build = build,
      .aliases = kAliases,
      .gguf = {.architecture = "qwen2", .outside = decoder_gguf_outside(), .inside = kGgufInside}};
}

}  // namespace atl::nn
