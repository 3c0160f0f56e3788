// Mixtral (Jiang et al. 2024): Mistral with experts in place of every MLP. A token's weights are a
// softmax over the experts it chose.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/expert_parts.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr ExpertNames kNames = {.router = "block_sparse_moe.gate",
                                .experts = "block_sparse_moe.experts",
                                .gate = "w1",
                                .up = "w3",
                                .down = "w2"};

// llama.cpp knows Mixtral as a llama with experts.
constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", false, GgufOrder::kQueryRotary},
    {"attn_k", "self_attn.k_proj", false, GgufOrder::kKeyRotary},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
};

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(
      reader, origin, "mixtral",
      {.max_positions = 131072, .num_kv_heads = 8, .norm_eps = 1e-5, .rope_theta = 1e6});
  config.experts = read_experts(reader, {.num_experts = 8, .top_k = 2});
  config.experts.intermediate_size = config.intermediate_size;
  config.sliding_window = reader.integer("sliding_window", 0);
  if (reader.contains("sliding_window") && config.sliding_window == 0) {
    reader.only("sliding_window", "null");
  }
  reader.only("router_jitter_noise", "0.0");
  reader.finish();
  validate_experts(config, origin);
  return config;
}

std::string to_json(const ModelConfig& config) {
  nlohmann::json own = {{"num_local_experts", config.experts.num_experts},
                        {"num_experts_per_tok", config.experts.top_k},
                        {"output_router_logits", false},
                        {"router_aux_loss_coef", config.experts.balance_loss},
                        {"router_jitter_noise", 0.0},
                        {"sliding_window", nullptr}};
  if (config.sliding_window > 0) own["sliding_window"] = config.sliding_window;
  return decoder_json(config, "MixtralForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  ModelConfig mixtral = config;
  mixtral.attention_bias = mixtral.mlp_bias = false;
  mixtral.experts.normalize = true;
  return build_decoder(mixtral, options, {.experts = &kNames});
}

}  // namespace

Family mixtral_family() {
  return {
      .model_type = "mixtral",
      .parse = parse,
      .to_json = to_json,
      .build = build,
      .has_experts = true,
      .has_window_setting = true,
      .gguf = {.architecture = "llama", .outside = decoder_gguf_outside(), .inside = kGgufInside}};
}

}  // namespace atl::nn
