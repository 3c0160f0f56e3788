// GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): attention and MLP of a block read
// the same x, layer norms and biases, a part of each head rotates, and one matrix has the query,
// key and value of each head side by side.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/log.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufOutside[] = {{"token_embd", "gpt_neox.embed_in"},
                                           {"output_norm", "gpt_neox.final_layer_norm", true},
                                           {"output", "embed_out"}};
constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm", true},
    {"attn_qkv", "attention.query_key_value", true, GgufOrder::kQkvByHead},
    {"attn_output", "attention.dense", true},
    {"ffn_norm", "post_attention_layernorm", true},
    {"ffn_up", "mlp.dense_h_to_4h", true},
    {"ffn_down", "mlp.dense_4h_to_h", true},
};

// transformers' names of the GELU with tanh, which differ by rounding alone.
constexpr const char* kTanhGelus[] = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"};
constexpr const char* kErfGelu = "gelu";
constexpr double kRotaryPart = 0.25;

bool has_tanh(const std::string& activation) {
  return std::find(std::begin(kTanhGelus), std::end(kTanhGelus), activation) !=
         std::end(kTanhGelus);
}

// config.json alone says this; a new model is as the published ones.
bool is_parallel(const ModelConfig& config) {
  if (config.source_json.empty()) return true;
  return ConfigReader(config.source_json, "config.json").boolean("use_parallel_residual", true);
}

void read_rotation(ConfigReader& reader, ModelConfig& config) {
  const double theta = reader.number("rotary_emb_base", config.rope_theta);
  const double part = reader.number("rotary_pct", kRotaryPart);
  const std::int64_t width = config.heads.head_dim;
  const bool is_part = part > 0 && part <= 1;
  const std::int64_t rotated =
      is_part ? static_cast<std::int64_t>(static_cast<double>(width) * part) : 0;
  if (reader.contains("rotary_pct") && (rotated < 2 || rotated % 2 != 0)) {
    throw reader.refused("rotary_pct", fmt::format("and {} of the {} elements of a head are not "
                                                   "whole pairs",
                                                   part, width));
  }
  config.rope_theta = theta;
  read_rope(reader, config);
  read_rotary_part(reader, config, part);
  if (reader.contains("rotary_emb_base") && config.rope_theta != theta) {
    throw reader.refused("rotary_emb_base",
                         fmt::format("but {} as \"rope_theta\"; keep one", config.rope_theta));
  }
  if (reader.contains("rotary_pct") && config.rotary_dim != rotated) {
    throw reader.refused("rotary_pct",
                         fmt::format("but \"partial_rotary_factor\" has {} of {} elements "
                                     "rotate; keep one",
                                     config.rotary_dim, width));
  }
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config;
  config.family = "gpt_neox";
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.num_layers = reader.integer("num_hidden_layers");
  config.heads.num_heads = reader.integer("num_attention_heads");
  config.heads.num_kv_heads = config.heads.num_heads;
  config.intermediate_size = reader.integer("intermediate_size");
  config.max_positions = reader.integer("max_position_embeddings", 2048);
  config.norm_eps = reader.number("layer_norm_eps", 1e-5);
  config.initializer_range = reader.number("initializer_range", 0.02);
  config.tie_embeddings = reader.boolean("tie_word_embeddings", false);
  config.attention_bias = reader.boolean("attention_bias", true);
  config.mlp_bias = true;
  config.activation = reader.text("hidden_act", kErfGelu);
  if (config.activation != kErfGelu && !has_tanh(config.activation)) {
    throw reader.refused("hidden_act",
                         "and atoll computes gpt_neox with \"gelu\", \"gelu_new\", \"gelu_fast\" "
                         "and \"gelu_pytorch_tanh\"");
  }
  reader.boolean("use_parallel_residual", true);    // see is_parallel
  reader.ignore({"attention_probs_dropout_prob"});  // a run's dropout is train.dropout
  check_quantised(reader);
  if (config.heads.num_heads > 0) {
    if (config.hidden_size % config.heads.num_heads != 0) {
      throw user_error("{}: hidden_size ({}) must be a multiple of num_attention_heads ({})",
                       origin, config.hidden_size, config.heads.num_heads);
    }
    config.heads.head_dim = config.hidden_size / config.heads.num_heads;
  }
  validate(config, origin);
  read_token_ids(reader, config);
  read_rotation(reader, config);
  validate(config, origin);  // rope_theta, too
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  const std::int64_t width = config.heads.head_dim;
  // A new model rotates a quarter of each head, as the published ones, where that is whole pairs.
  const double habit = width % 8 == 0 ? kRotaryPart : 1.0;
  const double part = config.rotary_dim > 0
                          ? static_cast<double>(config.rotary_dim) / static_cast<double>(width)
                          : habit;
  const bool is_new = config.source_json.empty();
  const nlohmann::json own = {
      {"attention_bias", config.attention_bias || is_new},
      {"hidden_act", config.activation.empty() ? kErfGelu : config.activation},
      {"layer_norm_eps", config.norm_eps},
      {"rotary_emb_base", config.rope_theta},
      {"rotary_pct", part},
      {"use_parallel_residual", is_parallel(config)}};
  auto json = nlohmann::json::parse(decoder_json(config, "GPTNeoXForCausalLM", own.dump()));
  for (const char* field : {"rms_norm_eps", "head_dim", "num_key_value_heads", "rope_theta"}) {
    json.erase(field);
  }
  return json.dump(2) + "\n";
}

std::unique_ptr<Model> build(const ModelConfig& given, const BuildOptions& options) {
  ModelConfig config = given;
  if (config.source_json.empty()) config.attention_bias = true;  // as to_json says
  config.mlp_bias = true;
  return build_decoder(config, options,
                       {.embedding = "gpt_neox.embed_in",
                        .block = "gpt_neox.layers.",
                        .final_norm = "gpt_neox.final_layer_norm",
                        .head = "embed_out",
                        .attention = "attention.",
                        .attention_out = "dense",
                        .qkv = "attention.query_key_value",
                        .qkv_by_head = true,
                        .parallel_residual = is_parallel(config),
                        .layer_norm = true,
                        .plain_mlp = "mlp.dense_h_to_4h",
                        .gelu = has_tanh(config.activation) ? ops::Gelu::kTanh : ops::Gelu::kErf,
                        .mlp_down = "mlp.dense_4h_to_h"});
}

// llama.cpp passes over this key of ours: without it a file would not say which GELU it was.
constexpr const char* kGgufActivation = "hidden_activation";

void read_gguf(GgufSettings& from, ModelConfig& config) {
  config.attention_bias = true;  // one of the fused matrix
  config.activation = kErfGelu;
  if (const auto found = from.find(kGgufActivation); found != from.end()) {
    if (const auto* text = std::get_if<std::string>(&found->second)) {
      config.activation = *text;
      from.erase(found);
    }
  }
  const bool parallel = take_gguf_number(from, "use_parallel_residual", 1) != 0;
  // See is_parallel: to_json writes the rest anew.
  config.source_json = nlohmann::json({{"use_parallel_residual", parallel}}).dump();
}

void write_gguf(const ModelConfig& config, const std::string& origin, GgufSettings& to) {
  const auto refuse = [&](const char* what) {
    throw user_error("{}: {}; llama.cpp's gptneox does not compute that: export as hf", origin,
                     what);
  };
  if (!config.attention_bias) refuse("\"attention_bias\" is false");
  if (config.tie_embeddings) refuse("\"tie_word_embeddings\" is true");
  if (!has_tanh(config.activation)) {
    log::warning(
        "{}: \"hidden_act\" is \"{}\", and llama.cpp computes gptneox with GELU's tanh form, at "
        "most 5e-4 from it",
        origin, config.activation);
  }
  to["use_parallel_residual"] = is_parallel(config);
  to[kGgufActivation] = config.activation;
}

}  // namespace

Family gpt_neox_family() {
  static constexpr const char* kAliases[] = {"pythia", "gptneox", "neox"};
  return {.model_type = "gpt_neox",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .norm = "layer_norm",
          .activation = "gelu",
          .has_gate = false,
          .has_even_heads = true,
          .has_partial_rotation = true,
          .aliases = kAliases,
          .sizes = {.num_kv_heads = "num_attention_heads",
                    .head_dim = "hidden_size / num_attention_heads"},
          .gguf = {.architecture = "gptneox",
                   .block = "gpt_neox.layers.",
                   .outside = kGgufOutside,
                   .inside = kGgufInside,
                   .write = write_gguf,
                   .read = read_gguf}};
}

}  // namespace atl::nn
