// Gemma 2 (Gemma Team 2024): norms before and behind each branch that multiply with 1 + weight,
// GeGLU, embeddings scaled by the root of the width, a window in every other layer, and caps of
// scores and logits.

#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr double kScoreCap = 50;
constexpr double kLogitCap = 30;
constexpr std::int64_t kWindow = 4096;

constexpr GgufTensorName kGgufOutside[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", false, GgufOrder::kPlusOne},
    {"output", "lm_head"}};
constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm", false, GgufOrder::kPlusOne},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm", false, GgufOrder::kPlusOne},
    {"ffn_norm", "pre_feedforward_layernorm", false, GgufOrder::kPlusOne},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm", false, GgufOrder::kPlusOne},
};

bool has_window(std::int64_t layer) {
  return layer % 2 == 0;
}

void set_windows(ModelConfig& config) {
  config.windowed_layers.clear();
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    config.windowed_layers.push_back(has_window(i));
  }
}

double read_cap(ConfigReader& reader, const char* field, double fallback) {
  if (reader.contains(field) && reader.is_null(field)) return 0;
  const double cap = reader.number(field, fallback);
  if (!(cap > 0)) throw reader.refused(field, "not above 0; null means none");
  return cap;
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "gemma2",
                                    {.max_positions = 8192,
                                     .num_kv_heads = 4,
                                     .head_dim = 256,
                                     .tie_embeddings = true,
                                     .activation_field = "hidden_activation",
                                     .activation = "gelu_pytorch_tanh"});
  reader.only("hidden_act", "\"gelu_pytorch_tanh\"");
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_bias = reader.boolean("attention_bias", false);
  const std::int64_t scalar = reader.integer("query_pre_attn_scalar", 256);
  if (scalar < 1) throw reader.refused("query_pre_attn_scalar", "not above 0");
  config.attention_scale = 1 / std::sqrt(static_cast<double>(scalar));
  config.attention_softcap = read_cap(reader, "attn_logit_softcapping", kScoreCap);
  config.logits_softcap = read_cap(reader, "final_logit_softcapping", kLogitCap);
  config.sliding_window = reader.integer("sliding_window", kWindow);
  if (config.sliding_window < 1) throw reader.refused("sliding_window", "which hides every token");
  // Files of 2024 say the same twice.
  if (reader.integer("sliding_window_size", config.sliding_window) != config.sliding_window) {
    throw reader.refused("sliding_window_size",
                         fmt::format("but \"sliding_window\" is {}", config.sliding_window));
  }
  set_windows(config);
  read_layer_types(reader, config);
  // Not as a new model, which has windows: see to_json.
  if (config.sliding_window == 0) {
    config.windowed_layers.assign(static_cast<std::size_t>(config.num_layers), false);
  }
  reader.only("use_bidirectional_attention", "false");
  reader.finish();
  return config;
}

nlohmann::json cap_json(double cap) {
  return cap > 0 ? nlohmann::json(cap) : nlohmann::json();
}

std::string to_json(const ModelConfig& config) {
  const bool is_new = config.sliding_window == 0 && config.windowed_layers.empty();
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const bool windowed = is_new ? has_window(i) : config.window(i) > 0;
    types.emplace_back(windowed ? "sliding_attention" : "full_attention");
  }
  const bool has_caps =
      !config.source_json.empty() || config.attention_softcap > 0 || config.logits_softcap > 0;
  const double scale = config.score_scale();
  const nlohmann::json own = {
      {"attention_bias", config.attention_bias},
      {"attn_logit_softcapping", cap_json(has_caps ? config.attention_softcap : kScoreCap)},
      {"final_logit_softcapping", cap_json(has_caps ? config.logits_softcap : kLogitCap)},
      {"hidden_act", nullptr},
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"layer_types", types},
      {"query_pre_attn_scalar", std::llround(1 / (scale * scale))},
      {"sliding_window", is_new ? std::min(config.max_positions, kWindow)
                                : std::max<std::int64_t>(config.sliding_window, 1)}};
  return decoder_json(config, "Gemma2ForCausalLM", own.dump());
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
  constexpr std::int64_t kLayersOf27B = 46;
  const auto width = static_cast<double>(config.num_layers == kLayersOf27B
                                             ? config.hidden_size / config.heads.num_heads
                                             : config.heads.head_dim);
  return 1 / std::sqrt(width);
}

void write_gguf(const ModelConfig& config, const std::string& origin, GgufSettings& to) {
  const auto refuse = [&](const char* field) {
    throw user_error("{}: \"{}\" is not as llama.cpp's gemma2 takes it to be; export as hf", origin,
                     field);
  };
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    if ((config.window(i) > 0) != has_window(i)) refuse("layer_types");
  }
  if (std::abs(config.score_scale() - gguf_scale(config)) > 1e-6 * config.score_scale()) {
    refuse("query_pre_attn_scalar");
  }
  if (!(config.attention_softcap > 0)) refuse("attn_logit_softcapping");
  if (!(config.logits_softcap > 0)) refuse("final_logit_softcapping");
  to["attn_logit_softcapping"] = config.attention_softcap;
  to["final_logit_softcapping"] = config.logits_softcap;
  to["attention.sliding_window"] = config.sliding_window;
}

void read_gguf(GgufSettings& from, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_softcap = take_gguf_number(from, "attn_logit_softcapping", kScoreCap);
  config.logits_softcap = take_gguf_number(from, "final_logit_softcapping", kLogitCap);
  config.sliding_window = static_cast<std::int64_t>(
      take_gguf_number(from, "attention.sliding_window", static_cast<double>(kWindow)));
  set_windows(config);
  config.attention_scale = gguf_scale(config);
}

}  // namespace

Family gemma2_family() {
  static constexpr const char* kAliases[] = {"gemma_2"};
  return {.model_type = "gemma2",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .activation = "geglu",
          .block_norms = 4,
          .has_window_setting = true,
          .aliases = kAliases,
          .gguf = {.architecture = "gemma2",
                   .outside = kGgufOutside,
                   .inside = kGgufInside,
                   .write = write_gguf,
                   .read = read_gguf,
                   .has_windows = true}};
}

}  // namespace atl::nn
