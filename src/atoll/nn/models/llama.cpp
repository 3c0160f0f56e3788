// Llama (Touvron et al. 2023): RMSNorm before each branch, rotary positions, grouped-query
// attention, SwiGLU, no biases unless config.json asks for them.

#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/nn/attention.h"
#include "atoll/nn/mlp.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/norm.h"
#include "atoll/nn/sequential.h"

namespace atl::nn {

namespace {

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.num_layers = reader.integer("num_hidden_layers");
  config.heads.num_heads = reader.integer("num_attention_heads");
  config.heads.num_kv_heads = reader.integer("num_key_value_heads", config.heads.num_heads);
  config.intermediate_size = reader.integer("intermediate_size");
  config.max_positions = reader.integer("max_position_embeddings", 2048);
  config.rope_theta = reader.number("rope_theta", 10000.0);
  if (const auto rope = reader.object("rope_parameters")) {  // transformers 5 keeps it there
    rope->only("rope_type", "\"default\"");
    config.rope_theta = rope->number("rope_theta", config.rope_theta);
    rope->finish();
  }
  config.norm_eps = reader.number("rms_norm_eps", 1e-6);
  config.initializer_range = reader.number("initializer_range", 0.02);
  config.tie_embeddings = reader.boolean("tie_word_embeddings", false);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  config.bos_token = reader.token_id("bos_token_id");
  config.eos_token = reader.token_id("eos_token_id");
  config.activation = reader.text("hidden_act", "silu");
  if (config.activation != "silu") {
    throw user_error("{}: \"hidden_act\" is \"{}\", and atoll computes llama only with \"silu\"",
                     origin, config.activation);
  }
  reader.only("rope_scaling", "null");
  reader.only("pretraining_tp", "1");
  reader.only("sliding_window", "null");
  if (config.heads.num_heads > 0) {
    const std::int64_t even_split = config.hidden_size / config.heads.num_heads;
    config.heads.head_dim = reader.integer("head_dim", even_split);
  }
  ignore_bookkeeping(reader);
  reader.finish();
  validate(config, origin);
  if (config.heads.head_dim % 2 != 0) {
    throw user_error("{}: head_dim ({}) must be even: positions rotate pairs of elements", origin,
                     config.heads.head_dim);
  }
  return config;
}

std::string to_json(const ModelConfig& config) {
  nlohmann::ordered_json json = {
      {"architectures", {"LlamaForCausalLM"}},
      {"attention_bias", config.attention_bias},
      {"attention_dropout", 0.0},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"head_dim", config.heads.head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", config.hidden_size},
      {"initializer_range", config.initializer_range},
      {"intermediate_size", config.intermediate_size},
      {"max_position_embeddings", config.max_positions},
      {"mlp_bias", config.mlp_bias},
      {"model_type", "llama"},
      {"num_attention_heads", config.heads.num_heads},
      {"num_hidden_layers", config.num_layers},
      {"num_key_value_heads", config.heads.num_kv_heads},
      {"pretraining_tp", 1},
      {"rms_norm_eps", config.norm_eps},
      {"rope_scaling", nullptr},
      {"rope_theta", config.rope_theta},
      {"tie_word_embeddings", config.tie_embeddings},
      {"torch_dtype", "float32"},
      {"use_cache", true},
      {"vocab_size", config.vocab_size},
  };
  if (config.bos_token >= 0) json["bos_token_id"] = config.bos_token;
  if (config.eos_token >= 0) json["eos_token_id"] = config.eos_token;
  return json.dump(2) + "\n";
}

std::unique_ptr<Layer> make_norm(const ModelConfig& config, Dtype dtype, std::string name) {
  return std::make_unique<RmsNorm>(
      config.norm_eps,
      make_param(std::move(name), {dtype, {config.hidden_size}}, Init::one(), /*decay=*/false));
}

std::unique_ptr<Layer> make_block(const ModelConfig& config, const BuildOptions& options,
                                  const Constant* rope_table, int index) {
  const std::string at = fmt::format("model.layers.{}.", index);
  const Dtype dtype = options.dtype;
  const std::int64_t width = config.hidden_size;
  const double stddev = config.initializer_range;
  // The branches' last products start smaller, so that the residual stream's variance does not
  // grow with depth (Radford et al. 2019, section 2.3).
  const double residual_stddev = stddev / std::sqrt(2.0 * static_cast<double>(config.num_layers));

  Linear qkv = make_linear(dtype,
                           {{at + "self_attn.q_proj", config.heads.query_width()},
                            {at + "self_attn.k_proj", config.heads.kv_width()},
                            {at + "self_attn.v_proj", config.heads.kv_width()}},
                           width, stddev, config.attention_bias);
  Linear out = make_linear(dtype, {{at + "self_attn.o_proj", width}}, config.heads.query_width(),
                           residual_stddev, config.attention_bias);
  auto attention = std::make_unique<SelfAttention>(
      SelfAttention::Options{.heads = config.heads,
                             .scale = 1.0 / std::sqrt(static_cast<double>(config.heads.head_dim)),
                             .rope_table = rope_table,
                             .index = index},
      std::move(qkv), std::move(out));
  auto mlp = std::make_unique<SwigluMlp>(
      make_linear(dtype,
                  {{at + "mlp.gate_proj", config.intermediate_size},
                   {at + "mlp.up_proj", config.intermediate_size}},
                  width, stddev, config.mlp_bias),
      make_linear(dtype, {{at + "mlp.down_proj", width}}, config.intermediate_size, residual_stddev,
                  config.mlp_bias));

  std::vector<std::unique_ptr<Layer>> block;
  block.push_back(make_residual(make_norm(config, dtype, at + "input_layernorm.weight"),
                                std::move(attention), options, 2 * index + 1));
  block.push_back(make_residual(make_norm(config, dtype, at + "post_attention_layernorm.weight"),
                                std::move(mlp), options, 2 * index + 2));
  return std::make_unique<Sequential>(std::move(block));
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  const Dtype dtype = options.dtype;
  const Spec table = {dtype, {config.vocab_size, config.hidden_size}};
  const Init init = Init::normal(config.initializer_range);
  auto embedding = std::make_unique<Embedding>(
      make_param("model.embed_tokens.weight", table, init, /*decay=*/true));
  auto head = config.tie_embeddings ? std::make_unique<LinearCrossEntropy>(&embedding->table())
                                    : std::make_unique<LinearCrossEntropy>(make_param(
                                          "lm_head.weight", table, init, /*decay=*/true));

  const std::int64_t positions =
      options.max_positions > 0 ? options.max_positions : config.max_positions;
  std::vector<std::unique_ptr<Constant>> constants;
  constants.push_back(make_rope_table(dtype, positions, config.heads.head_dim, config.rope_theta));
  std::vector<std::unique_ptr<Layer>> blocks;
  for (int i = 0; i < config.num_layers; ++i) {
    blocks.push_back(make_block(config, options, constants.front().get(), i));
  }
  return assemble(config, options, std::move(constants), std::move(embedding), std::move(blocks),
                  make_norm(config, dtype, "model.norm.weight"), std::move(head));
}

}  // namespace

Family llama_family() {
  return {"llama", parse, to_json, build};
}

}  // namespace atl::nn
