// OLMo 2 (OLMo Team 2025): Llama with norms behind the branches instead of before them, and with
// one norm of all query heads and one of all key heads. OLMo 3 adds a window in three of four
// layers; the others alone may scale their rotation.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr double kTheta = 500000;  // of both kinds of OLMo 3's layers
constexpr std::int64_t kPattern = 4;
constexpr std::int64_t kWindow = 4096;

constexpr GgufTensorName kGgufInside[] = {
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

bool has_window(std::int64_t layer) {
  return (layer + 1) % kPattern != 0;
}

ModelConfig read(ConfigReader& reader, const std::string& origin, const char* family,
                 const DecoderDefaults& defaults) {
  ModelConfig config = read_decoder(reader, origin, family, defaults);
  config.qk_norm = true;
  config.attention_bias = reader.boolean("attention_bias", false);
  return config;
}

ModelConfig parse_olmo2(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read(reader, origin, "olmo2", {.max_positions = 2048, .norm_eps = 1e-5});
  reader.finish();
  return config;
}

std::string to_olmo2_json(const ModelConfig& config) {
  const nlohmann::json own = {{"attention_bias", config.attention_bias}, {"pad_token_id", nullptr}};
  return decoder_json(config, "Olmo2ForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& given, const BuildOptions& options) {
  ModelConfig config = given;
  config.qk_norm = true;
  return build_decoder(config, options,
                       {.attention_norm = nullptr,
                        .attention_out_norm = "post_attention_layernorm",
                        .mlp_norm = nullptr,
                        .mlp_out_norm = "post_feedforward_layernorm",
                        .qk_norm_of_rows = true});
}

ModelConfig parse_olmo3(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read(
      reader, origin, "olmo3",
      {.max_positions = 2048, .norm_eps = 1e-5, .rope_theta = kTheta, .local_rope_theta = kTheta});
  config.sliding_window = reader.integer("sliding_window", kWindow);
  if (config.sliding_window < 1) throw reader.refused("sliding_window", "which hides every token");
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    config.windowed_layers.push_back(has_window(i));
  }
  read_layer_types(reader, config);
  // Not as a new model, which has windows: see to_olmo3_json.
  if (config.sliding_window == 0) {
    config.windowed_layers.assign(static_cast<std::size_t>(config.num_layers), false);
  }
  if (!reader.object("rope_parameters") && config.rope_theta != kTheta) {
    throw reader.refused(
        "rope_theta",
        "and transformers 4 and 5 disagree whether layers with a window have it too; give "
        "\"rope_parameters\" with \"full_attention\" and \"sliding_attention\"");
  }
  reader.finish();
  return config;
}

std::string to_olmo3_json(const ModelConfig& given) {
  ModelConfig config = given;
  const bool is_new = config.sliding_window == 0 && config.windowed_layers.empty();
  if (config.local_rope_theta == 0) config.local_rope_theta = config.rope_theta;
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const bool windowed = is_new ? has_window(i) : config.window(i) > 0;
    types.emplace_back(windowed ? "sliding_attention" : "full_attention");
  }
  const nlohmann::json own = {
      {"attention_bias", config.attention_bias},
      {"layer_types", types},
      {"pad_token_id", nullptr},
      {"sliding_window", is_new ? std::min(config.max_positions, kWindow)
                                : std::max<std::int64_t>(config.sliding_window, 1)}};
  const std::string flat = decoder_json(config, "Olmo3ForCausalLM", own.dump());
  if (config.rope_theta == kTheta && config.local_rope_theta == kTheta) return flat;
  // One base for all is what transformers 4 and 5 read in two ways.
  auto json = nlohmann::json::parse(flat);
  nlohmann::json full = json["rope_scaling"].is_null() ? nlohmann::json{{"rope_type", "default"}}
                                                       : json["rope_scaling"];
  full["rope_theta"] = config.rope_theta;
  json["rope_parameters"] = {
      {"full_attention", full},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", config.local_rope_theta}}}};
  json.erase("rope_scaling");
  json.erase("rope_theta");
  return json.dump(2) + "\n";
}

}  // namespace

Family olmo2_family() {
  static constexpr const char* kAliases[] = {"olmo_2"};
  return {
      .model_type = "olmo2",
      .parse = parse_olmo2,
      .to_json = to_olmo2_json,
      .build = build,
      .aliases = kAliases,
      .gguf = {.architecture = "olmo2", .outside = decoder_gguf_outside(), .inside = kGgufInside}};
}

// llama.cpp reads OLMo 3 as olmo2 with a window, whose layers it scales as the others.
Family olmo3_family() {
  static constexpr const char* kAliases[] = {"olmo_3", "olmo"};
  return {.model_type = "olmo3",
          .parse = parse_olmo3,
          .to_json = to_olmo3_json,
          .build = build,
          .has_window_setting = true,
          .aliases = kAliases};
}

}  // namespace atl::nn
