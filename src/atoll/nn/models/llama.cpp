// Llama 1 to 3.2 (Touvron et al. 2023; Grattafiori et al. 2024): the decoder itself, without biases
// unless config.json asks for them, from 3.1 on with stretched rotary frequencies.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "llama", {.max_positions = 2048});
  config.attention_bias = reader.boolean("attention_bias", false);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  reader.only("sliding_window", "null");
  read_layer_types(reader, config);
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  const nlohmann::json own = {{"attention_bias", config.attention_bias},
                              {"mlp_bias", config.mlp_bias},
                              {"pretraining_tp", 1}};
  return decoder_json(config, "LlamaForCausalLM", own.dump());
}

}  // namespace

Family llama_family() {
  static constexpr const char* kAliases[] = {"llama2", "llama3", "llama_3", "smollm", "smollm2"};
  return {.model_type = "llama",
          .parse = parse,
          .to_json = to_json,
          .build = build_decoder,
          .aliases = kAliases,
          .gguf = {.architecture = "llama",
                   .outside = decoder_gguf_outside(),
                   .inside = llama_gguf_inside()}};
}

}  // namespace atl::nn
