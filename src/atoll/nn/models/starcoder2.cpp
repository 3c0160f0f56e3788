// StarCoder2 (Lozhkov et al. 2024): rotary positions and grouped-query attention as Llama, layer
// norms and an MLP without a gate as GPT-2, biases everywhere.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufOutside[] = {{"token_embd", "model.embed_tokens"},
                                           {"output_norm", "model.norm", true},
                                           {"output", "lm_head"}};
constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm", true},
    {"attn_q", "self_attn.q_proj", true},
    {"attn_k", "self_attn.k_proj", true},
    {"attn_v", "self_attn.v_proj", true},
    {"attn_output", "self_attn.o_proj", true},
    {"ffn_norm", "post_attention_layernorm", true},
    {"ffn_up", "mlp.c_fc", true},
    {"ffn_down", "mlp.c_proj", true},
};

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "starcoder2",
                                    {.max_positions = 4096,
                                     .num_kv_heads = 2,
                                     .norm_eps = 1e-5,
                                     .norm_eps_field = "norm_epsilon",
                                     .tie_embeddings = true,
                                     .activation = "gelu_pytorch_tanh"});
  reader.only("norm_type", "\"layer_norm\"");
  reader.only("mlp_type", "\"default\"");
  config.attention_bias = reader.boolean("use_bias", true);
  config.mlp_bias = config.attention_bias;
  config.sliding_window = reader.integer("sliding_window", 0);
  reader.only("scale_attn_weights", "true");
  // StarCoder's, from which these files were converted; transformers' StarCoder2 reads none.
  reader.ignore({"activation_function", "attention_softmax_in_fp32", "layer_norm_epsilon",
                 "scale_attention_softmax_in_fp32"});
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  const bool has_biases = config.attention_bias || config.source_json.empty();
  const nlohmann::json own = {
      {"hidden_act", "gelu_pytorch_tanh"},
      {"norm_epsilon", config.norm_eps},
      {"rms_norm_eps", nullptr},
      {"sliding_window",
       config.sliding_window > 0 ? nlohmann::json(config.sliding_window) : nlohmann::json()},
      {"use_bias", has_biases}};
  auto json = nlohmann::json::parse(decoder_json(config, "Starcoder2ForCausalLM", own.dump()));
  json.erase("rms_norm_eps");
  return json.dump(2) + "\n";
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options,
                       {.layer_norm = true, .plain_mlp = "mlp.c_fc", .mlp_down = "mlp.c_proj"});
}

void read_gguf(GgufSettings& /*from*/, ModelConfig& config) {
  config.attention_bias = true;
  config.mlp_bias = true;
}

void write_gguf(const ModelConfig& config, const std::string& origin, GgufSettings& /*to*/) {
  if (config.attention_bias && config.mlp_bias) return;
  throw user_error("{}: llama.cpp's starcoder2 has biases, and \"use_bias\" is false; export as hf",
                   origin);
}

}  // namespace

Family starcoder2_family() {
  static constexpr const char* kAliases[] = {"starcoder", "starcoder_2"};
  return {.model_type = "starcoder2",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .norm = "layer_norm",
          .activation = "gelu",
          .has_gate = false,
          .has_window_setting = true,
          .aliases = kAliases,
          .gguf = {.architecture = "starcoder2",
                   .outside = kGgufOutside,
                   .inside = kGgufInside,
                   .write = write_gguf,
                   .read = read_gguf}};
}

}  // namespace atl::nn
