#pragma once

// The models whose memory and traffic on a GPU tests pin.

#include "atoll/nn/models/family.h"

namespace atl::test {

/// GPT-2 of 124M, its vocabulary padded to a multiple of 128.
inline nn::ModelConfig gpt2_124m() {
  nn::ModelConfig config;
  config.family = "gpt2";
  config.vocab_size = 50304;
  config.hidden_size = 768;
  config.num_layers = 12;
  config.heads = {.num_heads = 12, .num_kv_heads = 12, .head_dim = 64};
  config.intermediate_size = 3072;
  config.max_positions = 1024;
  config.activation = "gelu_new";
  config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  return config;
}

/// A Llama 3 with eight key-value heads; `tied`: the head shares the embedding.
inline nn::ModelConfig llama(std::int64_t width, std::int64_t layers, std::int64_t heads,
                             std::int64_t intermediate, bool tied) {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 128256;
  config.hidden_size = width;
  config.num_layers = layers;
  config.heads = {.num_heads = heads, .num_kv_heads = 8, .head_dim = width / heads};
  config.intermediate_size = intermediate;
  config.max_positions = 8192;
  config.tie_embeddings = tied;
  return config;
}

/// Llama 3.2 1B.
inline nn::ModelConfig llama_1b() {
  return llama(2048, 16, 32, 8192, true);
}

/// Llama 3.1 8B.
inline nn::ModelConfig llama_8b() {
  return llama(4096, 32, 32, 14336, false);
}

}  // namespace atl::test
