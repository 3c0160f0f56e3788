// Gemma 3's text models (Gemma Team 2025): norms before and behind each branch that multiply with
// 1 + weight, GeGLU, norms of each query and key head, embeddings scaled by the root of the width,
// and five layers with a window, whose positions turn on a base of their own, for each without.

#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr std::int64_t kPattern = 6;  // every sixth layer has no window
constexpr double kLocalTheta = 10000;

constexpr GgufTensorName kGgufOutside[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", false, GgufOrder::kPlusOne},
    {"output", "lm_head"}};
constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm", false, GgufOrder::kPlusOne},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm", false, GgufOrder::kPlusOne},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm", false, GgufOrder::kPlusOne},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm", false, GgufOrder::kPlusOne},
    {"ffn_norm", "pre_feedforward_layernorm", false, GgufOrder::kPlusOne},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm", false, GgufOrder::kPlusOne},
};

bool has_window(std::int64_t layer, std::int64_t pattern) {
  return (layer + 1) % pattern != 0;
}

void read_windows(ConfigReader& reader, ModelConfig& config) {
  std::int64_t pattern = reader.integer("_sliding_window_pattern", kPattern);
  pattern = reader.integer("sliding_window_pattern", pattern);
  config.sliding_window = reader.integer("sliding_window", 4096);
  if (pattern < 1) throw reader.refused("sliding_window_pattern", "which must be at least 1");
  if (config.sliding_window < 1) throw reader.refused("sliding_window", "which hides every token");
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    config.windowed_layers.push_back(has_window(i, pattern));
  }
  read_layer_types(reader, config);
  // Not as a new model, which has windows: see to_json.
  if (config.sliding_window == 0) {
    config.windowed_layers.assign(static_cast<std::size_t>(config.num_layers), false);
  }
}

// What follows from being of this family.
void add_constants(ModelConfig& config) {
  config.qk_norm = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  if (config.local_rope_theta == 0) config.local_rope_theta = kLocalTheta;
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "gemma3_text",
                                    {.max_positions = 131072,
                                     .num_kv_heads = 4,
                                     .head_dim = 256,
                                     .rope_theta = 1000000,
                                     .local_rope_theta = kLocalTheta,
                                     .tie_embeddings = true,
                                     .activation_field = "hidden_activation",
                                     .activation = "gelu_pytorch_tanh"});
  add_constants(config);
  config.attention_bias = reader.boolean("attention_bias", false);
  const std::int64_t scalar = reader.integer("query_pre_attn_scalar", 256);
  if (scalar < 1) throw reader.refused("query_pre_attn_scalar", "not above 0");
  config.attention_scale = 1 / std::sqrt(static_cast<double>(scalar));
  read_windows(reader, config);
  reader.only("use_bidirectional_attention", "false");
  for (const char* cap : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    if (!reader.is_null(cap)) throw reader.refused(cap, "and Gemma 3 has none in atoll; use null");
  }
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& given) {
  ModelConfig config = given;
  add_constants(config);
  const bool is_new = config.sliding_window == 0 && config.windowed_layers.empty();
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const bool windowed = is_new ? has_window(i, kPattern) : config.window(i) > 0;
    types.emplace_back(windowed ? "sliding_attention" : "full_attention");
  }
  const double scale = config.score_scale();
  const nlohmann::json own = {
      {"attention_bias", config.attention_bias},
      {"hidden_act", nullptr},
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"layer_types", types},
      {"query_pre_attn_scalar", std::llround(1 / (scale * scale))},
      {"rope_local_base_freq", config.local_rope_theta},
      {"sliding_window", is_new ? config.max_positions : config.sliding_window}};
  return decoder_json(config, "Gemma3ForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options,
                       {.attention_out_norm = "post_attention_layernorm",
                        .mlp_norm = "pre_feedforward_layernorm",
                        .mlp_out_norm = "post_feedforward_layernorm",
                        .norm_offset = 1,
                        .glu = Glu::kGegluTanh});
}

// llama.cpp takes the scale of the 27B for a model of as many layers, else that of the head.
double gguf_scale(const ModelConfig& config) {
  constexpr std::int64_t kLayersOf27B = 62;
  const auto width = static_cast<double>(config.num_layers == kLayersOf27B
                                             ? config.hidden_size / config.heads.num_heads
                                             : config.heads.head_dim);
  return 1 / std::sqrt(width);
}

void write_gguf(const ModelConfig& config, const std::string& origin, GgufSettings& to) {
  const auto refuse = [&](const char* field) {
    throw user_error("{}: \"{}\" is not as llama.cpp's gemma3 takes it to be; export as hf", origin,
                     field);
  };
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    if ((config.window(i) > 0) != has_window(i, kPattern)) refuse("layer_types");
  }
  if (config.local_rope_theta != kLocalTheta) refuse("rope_local_base_freq");
  if (std::abs(config.score_scale() - gguf_scale(config)) > 1e-6 * config.score_scale()) {
    refuse("query_pre_attn_scalar");
  }
  if (config.sliding_window > 0) to["attention.sliding_window"] = config.sliding_window;
}

void read_gguf(GgufSettings& from, ModelConfig& config) {
  config.local_rope_theta = take_gguf_number(from, "rope.freq_base_swa", kLocalTheta);
  add_constants(config);
  config.sliding_window =
      static_cast<std::int64_t>(take_gguf_number(from, "attention.sliding_window", 1024));
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    config.windowed_layers.push_back(has_window(i, kPattern));
  }
  config.attention_scale = gguf_scale(config);
}

}  // namespace

Family gemma3_family() {
  static constexpr const char* kAliases[] = {"gemma", "gemma3", "gemma_3"};
  return {.model_type = "gemma3_text",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .activation = "geglu",
          .block_norms = 4,
          .has_window_setting = true,
          .aliases = kAliases,
          .gguf = {.architecture = "gemma3",
                   .outside = kGgufOutside,
                   .inside = kGgufInside,
                   .write = write_gguf,
                   .read = read_gguf,
                   .has_windows = true}};
}

}  // namespace atl::nn
