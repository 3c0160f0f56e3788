// The config.json of new models, in the form that transformers 4 and 5 both read.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

using nlohmann::json;

json scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return nullptr;
    case RopeScaling::Kind::kLinear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScaling::Kind::kYarn:
      return {{"rope_type", "yarn"},
              {"factor", scaling.factor},
              {"attention_factor", scaling.attention_factor},
              {"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"truncate", scaling.truncate},
              {"original_max_position_embeddings", scaling.original_max_positions}};
    case RopeScaling::Kind::kLongrope:
      return {{"rope_type", "longrope"},
              {"factor", scaling.factor},
              {"attention_factor", scaling.attention_factor},
              {"short_factor", scaling.short_factors},
              {"long_factor", scaling.long_factors},
              {"original_max_position_embeddings", scaling.original_max_positions}};
    case RopeScaling::Kind::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", scaling.original_max_positions}};
  }
  return nullptr;
}

json token_json(std::int64_t token) {
  return token >= 0 ? json(token) : json();
}

}  // namespace

std::string decoder_json(const ModelConfig& config, const char* architecture,
                         std::string_view own) {
  json fields = {
      {"architectures", {architecture}},
      {"attention_dropout", 0.0},
      {"bos_token_id", token_json(config.bos_token)},
      {"eos_token_id", token_json(config.eos_token)},
      {"head_dim", config.heads.head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", config.hidden_size},
      {"initializer_range", config.initializer_range},
      {"intermediate_size", config.intermediate_size},
      {"max_position_embeddings", config.max_positions},
      {"model_type", config.family},
      {"num_attention_heads", config.heads.num_heads},
      {"num_hidden_layers", config.num_layers},
      {"num_key_value_heads", config.heads.num_kv_heads},
      {"rms_norm_eps", config.norm_eps},
      {"rope_scaling", scaling_json(config.rope_scaling)},
      {"rope_theta", config.rope_theta},
      {"tie_word_embeddings", config.tie_embeddings},
      {"torch_dtype", "float32"},
      {"use_cache", true},
      {"vocab_size", config.vocab_size},
  };
  fields.update(json::parse(own));
  if (fields["hidden_act"].is_null()) fields.erase("hidden_act");  // the family has another name
  return fields.dump(2) + "\n";
}

std::string windows_by_layer_json(const ModelConfig& config) {
  std::vector<std::string> types;
  std::int64_t first = config.num_layers;  // of the windowed layers at the end
  for (std::int64_t i = config.num_layers; i-- > 0;) {
    const bool windowed = config.window(i) > 0;
    if (windowed && first == i + 1) first = i;
    types.emplace_back(windowed ? "sliding_attention" : "full_attention");
  }
  std::reverse(types.begin(), types.end());
  const bool use = config.sliding_window > 0;
  const json fields = {{"use_sliding_window", use},
                       {"sliding_window", use ? json(config.sliding_window) : json()},
                       {"max_window_layers", first},
                       {"layer_types", types}};
  return fields.dump();
}

}  // namespace atl::nn
