// SmolLM3 (Bakouch et al. 2025): Llama whose every fourth layer has no positions (Yang et al. 2025,
// "RoPE to NoPE and back again").

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

// "no_rope_layers" has a 1 for each layer that rotates; absent, each "no_rope_layer_interval"-th
// does not.
void read_unrotated_layers(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t interval = reader.integer("no_rope_layer_interval", 4);
  std::vector<std::int64_t> rotates = reader.integers("no_rope_layers");
  if (reader.is_null("no_rope_layers")) {
    if (interval < 1) throw reader.refused("no_rope_layer_interval", "which must be at least 1");
    for (std::int64_t i = 0; i < config.num_layers; ++i) {
      rotates.push_back((i + 1) % interval != 0 ? 1 : 0);
    }
  }
  if (static_cast<std::int64_t>(rotates.size()) != config.num_layers) {
    throw reader.refused("no_rope_layers",
                         fmt::format("but \"num_hidden_layers\" is {}", config.num_layers));
  }
  for (const std::int64_t one : rotates) config.unrotated_layers.push_back(one == 0);
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(
      reader, origin, "smollm3",
      {.max_positions = 32768, .num_kv_heads = 4, .rope_theta = 2000000, .tie_embeddings = true});
  config.attention_bias = reader.boolean("attention_bias", false);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  read_unrotated_layers(reader, config);
  read_windows_by_layer(reader, config);
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  nlohmann::json own = nlohmann::json::parse(windows_by_layer_json(config));
  std::vector<int> rotates;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    // A new model has the published pattern.
    const bool is_new = config.unrotated_layers.empty();
    rotates.push_back((is_new ? (i + 1) % 4 != 0 : config.rotates(i)) ? 1 : 0);
  }
  own["no_rope_layers"] = rotates;
  own["pad_token_id"] = nullptr;  // absent, transformers takes one that a small vocabulary lacks
  own["attention_bias"] = config.attention_bias;
  own["mlp_bias"] = config.mlp_bias;
  return decoder_json(config, "SmolLM3ForCausalLM", own.dump());
}

// llama.cpp's smollm3 leaves out the rotation of each fourth layer, whatever a file says.
void check_gguf_pattern(const ModelConfig& config, const std::string& origin,
                        GgufSettings& /*to*/) {
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    if (config.rotates(i) == ((i + 1) % 4 != 0)) continue;
    throw user_error(
        "{}: \"no_rope_layers\" is not each fourth layer, the only pattern that llama.cpp "
        "computes; "
        "export as hf",
        origin);
  }
}

}  // namespace

Family smollm3_family() {
  return {.model_type = "smollm3",
          .parse = parse,
          .to_json = to_json,
          .build = build_decoder,
          .gguf = {.architecture = "smollm3",
                   .outside = decoder_gguf_outside(),
                   .inside = llama_gguf_inside(),
                   .write = check_gguf_pattern}};
}

}  // namespace atl::nn
