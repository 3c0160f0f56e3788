#pragma once

// The sizes of a model, which say how much memory it takes before it is built.

#include <string>
#include <string_view>

#include "atoll/nn/model.h"

namespace atl::nn {

/// What a family's config.json calls its sizes.
struct SizeNames {
  const char* hidden_size = "hidden_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_heads = "num_attention_heads";
  const char* num_kv_heads = "num_key_value_heads";
  const char* head_dim = "head_dim";
  const char* intermediate_size = "intermediate_size";
  const char* max_positions = "max_position_embeddings";
};
SizeNames size_names(std::string_view family);

/// "vocab_size is 256, hidden_size 64, ...", as the family's config.json calls them.
std::string size_list(const ModelConfig& config);

/// How many parameters the model has in its large matrices: a lower bound of all. A double, which
/// no product of sizes overflows.
double least_parameters(const ModelConfig& config);

}  // namespace atl::nn
