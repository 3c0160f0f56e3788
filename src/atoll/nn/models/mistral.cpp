// Mistral (Jiang et al. 2023): Llama without biases, and every layer with the same window.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config =
      read_decoder(reader, origin, "mistral", {.max_positions = 131072, .num_kv_heads = 8});
  // Absent is 4096 in transformers; null is none.
  constexpr std::int64_t kNull = -1;
  const std::int64_t window =
      reader.contains("sliding_window") ? reader.integer("sliding_window", kNull) : 4096;
  if (window == 0) throw reader.refused("sliding_window", "which hides a token from itself");
  config.sliding_window = window == kNull ? 0 : window;
  if (reader.contains("layer_types")) {
    read_layer_types(reader, config);
    const std::int64_t same = window == kNull ? 0 : window;
    if (config.sliding_window != same || !config.windowed_layers.empty()) {
      throw reader.refused("layer_types", "but Mistral's layers all have the same window");
    }
  }
  reader.only("attention_bias", "false");
  reader.only("mlp_bias", "false");
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  nlohmann::json own = {{"sliding_window", nullptr}};
  if (config.sliding_window > 0) own["sliding_window"] = config.sliding_window;
  return decoder_json(config, "MistralForCausalLM", own.dump());
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  ModelConfig mistral = config;
  mistral.attention_bias = mistral.mlp_bias = false;
  return build_decoder(mistral, options);
}

}  // namespace

Family mistral_family() {
  // llama.cpp takes it for a llama.
  return {.model_type = "mistral",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .has_window_setting = true,
          .gguf = {.architecture = "llama",
                   .outside = decoder_gguf_outside(),
                   .inside = llama_gguf_inside()}};
}

}  // namespace atl::nn
