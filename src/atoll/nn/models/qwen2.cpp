// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on query, key and value, and perhaps a
// window in some of the layers.

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config =
      read_decoder(reader, origin, "qwen2", {.max_positions = 32768, .num_kv_heads = 32});
  config.qkv_bias = true;
  read_windows_by_layer(reader, config);
  reader.only("use_mrope", "false");
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
  return {"qwen2", parse, to_json, build};
}

}  // namespace atl::nn
