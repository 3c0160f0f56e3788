#pragma once

// config.json of small models, and what tests do to them.

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"

namespace atl::nn::family_testing {

inline constexpr char kLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100,
  "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 24, "max_position_embeddings": 32, "rms_norm_eps": 1e-06,
  "rope_theta": 5000.0, "tie_word_embeddings": false, "torch_dtype": "float32",
  "bos_token_id": 1, "eos_token_id": [2, 3], "transformers_version": "4.0"})";

inline constexpr char kGpt2[] = R"({
  "model_type": "gpt2", "vocab_size": 100, "n_embd": 16, "n_layer": 2, "n_head": 4,
  "n_positions": 32, "n_ctx": 32, "activation_function": "gelu_new", "resid_pdrop": 0.1,
  "bos_token_id": 98, "eos_token_id": 98, "layer_norm_epsilon": 1e-05})";

inline constexpr char kMistral[] = R"({
  "model_type": "mistral", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24,
  "max_position_embeddings": 32, "rms_norm_eps": 1e-05, "sliding_window": 8, "eos_token_id": 2})";

inline constexpr char kQwen2[] = R"({
  "model_type": "qwen2", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
  "max_position_embeddings": 32, "use_sliding_window": true, "sliding_window": 8,
  "max_window_layers": 1, "tie_word_embeddings": true, "eos_token_id": 2})";

inline constexpr char kQwen3[] = R"({
  "model_type": "qwen3", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 24,
  "max_position_embeddings": 32, "attention_bias": false, "use_sliding_window": false,
  "sliding_window": null, "rope_theta": 1000000, "eos_token_id": 2})";

/// The object with one field more, `"name": value`.
inline std::string with(std::string json, const std::string& field) {
  return json.insert(1, field + ", ");
}

/// The text with `to` in the place of the first `from`, which must be there.
inline std::string changed(std::string json, const std::string& from, const std::string& to) {
  const auto at = json.find(from);
  if (at == std::string::npos) ADD_FAILURE() << from << " is not in " << json;
  return json.replace(at, from.size(), to);
}

/// The object without a field that is not the last one.
inline std::string without(const std::string& json, const std::string& field) {
  return std::regex_replace(json, std::regex("\"" + field + R"(": (\[[^\]]*\]|[^,]*), )"), "");
}

/// What parse_config says of dir/config.json, or "no error".
inline std::string error_of(const std::string& json) {
  try {
    parse_config(json, "dir/config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace atl::nn::family_testing
