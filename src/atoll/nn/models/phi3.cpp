// Phi-3, 3.5 and 4 (Abdin et al. 2024): Llama whose query, key and value are one matrix and whose
// gate and up are one, perhaps with a window, a part of each head rotated, and longrope.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},      {"ffn_down", "mlp.down_proj"},
};

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config =
      read_decoder(reader, origin, "phi3", {.max_positions = 4096, .norm_eps = 1e-5});
  config.sliding_window = reader.integer("sliding_window", 0);
  if (!reader.is_null("sliding_window") && config.sliding_window == 0) {
    throw reader.refused("sliding_window", "which hides a token from itself");
  }
  read_layer_types(reader, config);
  reader.only("attention_bias", "false");
  reader.only("mlp_bias", "false");
  reader.only("lm_head_bias", "false");
  // Phi-4-mini has both, and transformers' code of the model reads neither.
  reader.only("full_attn_mod", "1");
  reader.only("interpolate_factor", "1");
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  const bool has_window = config.sliding_window > 0;
  const std::int64_t rotary = config.rotary_dim > 0 ? config.rotary_dim : config.heads.head_dim;
  const nlohmann::json own = {
      {"original_max_position_embeddings", config.rope_scaling.original_max_positions > 0
                                               ? config.rope_scaling.original_max_positions
                                               : config.max_positions},
      {"pad_token_id", nullptr},  // absent, transformers takes one that a small vocabulary lacks
      {"partial_rotary_factor",
       static_cast<double>(rotary) / static_cast<double>(config.heads.head_dim)},
      {"sliding_window", has_window ? nlohmann::json(config.sliding_window) : nlohmann::json()}};
  return decoder_json(config, "Phi3ForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options,
                       {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"});
}

}  // namespace

Family phi3_family() {
  static constexpr const char* kAliases[] = {"phi", "phi4", "phi_3", "phi_4"};
  return {
      .model_type = "phi3",
      .parse = parse,
      .to_json = to_json,
      .build = build,
      .has_partial_rotation = true,
      .has_window_setting = true,
      .aliases = kAliases,
      .gguf = {.architecture = "phi3", .outside = decoder_gguf_outside(), .inside = kGgufInside}};
}

}  // namespace atl::nn
