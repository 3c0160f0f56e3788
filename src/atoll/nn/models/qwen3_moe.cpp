// Qwen3-MoE (Yang et al. 2025): Qwen3 with experts in place of the MLPs of all blocks, or of some.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/expert_parts.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
};

// Block i has experts when it is none of "mlp_only_layers" and i + 1 is a multiple of
// "decoder_sparse_step".
void read_dense_layers(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t step = reader.integer("decoder_sparse_step", 1);
  if (step < 1) throw reader.refused("decoder_sparse_step", "which must be at least 1");
  const std::vector<std::int64_t> dense = reader.integers("mlp_only_layers");
  std::vector<bool> layers;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const bool is_named = std::find(dense.begin(), dense.end(), i) != dense.end();
    layers.push_back(is_named || (i + 1) % step != 0);
  }
  const auto count = std::count(layers.begin(), layers.end(), true);
  if (count == config.num_layers) {
    throw reader.refused("mlp_only_layers",
                         fmt::format("and \"decoder_sparse_step\" is {}: no block has experts; "
                                     "that is a model of the family qwen3",
                                     step));
  }
  if (count > 0) config.experts.dense_layers = std::move(layers);
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config =
      read_decoder(reader, origin, "qwen3_moe", {.max_positions = 32768, .num_kv_heads = 4});
  config.qk_norm = true;
  config.attention_bias = reader.boolean("attention_bias", false);
  config.experts = read_experts(reader, {.num_experts = 128, .top_k = 8});
  config.experts.intermediate_size = reader.integer("moe_intermediate_size", 768);
  config.experts.normalize = reader.boolean("norm_topk_prob", false);
  read_dense_layers(reader, config);
  // All blocks have the window, whatever "max_window_layers" says, which other Qwens read.
  const bool has_window = reader.boolean("use_sliding_window", false);
  const std::int64_t window =
      reader.contains("sliding_window") ? reader.integer("sliding_window", 0) : 4096;
  if (has_window && window < 1) {
    throw reader.refused("sliding_window", "but \"use_sliding_window\" is true; give a width");
  }
  config.sliding_window = has_window ? window : 0;
  if (has_window)
    reader.only("max_window_layers", "0");
  else
    reader.ignore({"max_window_layers"});
  // What Qwen3-Coder says beside them, and is so in every model of this family.
  reader.only("shared_expert_intermediate_size", "0");
  reader.only("qkv_bias", "false");
  reader.only("use_qk_norm", "true");
  reader.finish();
  validate_experts(config, origin);
  return config;
}

std::string to_json(const ModelConfig& config) {
  std::vector<std::int64_t> dense;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    if (!config.experts.has_experts(i)) dense.push_back(i);
  }
  const bool has_window = config.sliding_window > 0;
  const nlohmann::json own = {
      {"attention_bias", config.attention_bias},
      {"decoder_sparse_step", 1},
      {"mlp_only_layers", dense},
      {"moe_intermediate_size", config.experts.intermediate_size},
      {"norm_topk_prob", config.experts.normalize},
      {"num_experts", config.experts.num_experts},
      {"num_experts_per_tok", config.experts.top_k},
      {"output_router_logits", false},
      {"router_aux_loss_coef", config.experts.balance_loss},
      {"sliding_window", has_window ? nlohmann::json(config.sliding_window) : nlohmann::json()},
      {"use_sliding_window", has_window}};
  return decoder_json(config, "Qwen3MoeForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  ModelConfig qwen3 = config;
  qwen3.qk_norm = true;
  qwen3.mlp_bias = false;
  static constexpr ExpertNames kNames;
  return build_decoder(qwen3, options, {.experts = &kNames});
}

}  // namespace

Family qwen3_moe_family() {
  return {
      .model_type = "qwen3_moe",
      .parse = parse,
      .to_json = to_json,
      .build = build,
      .has_experts = true,
      .has_expert_width = true,
      .gguf = {
          .architecture = "qwen3moe", .outside = decoder_gguf_outside(), .inside = kGgufInside}};
}

}  // namespace atl::nn
