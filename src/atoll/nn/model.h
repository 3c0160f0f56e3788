#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/nn/embedding.h"
#include "atoll/nn/head.h"
#include "atoll/nn/layer.h"
#include "atoll/ops/rope.h"

namespace atl::nn {

/// The shape of a decoder-only language model, whatever its family. Field meanings are those of
/// Hugging Face's config.json.
struct ModelConfig {
  std::string family;  ///< config.json's model_type: "llama", "gpt2"
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  ops::HeadLayout heads;
  std::int64_t intermediate_size = 0;
  std::int64_t max_positions = 0;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool tie_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::string activation;
  std::int64_t bos_token = -1;  ///< -1: the model has none
  std::int64_t eos_token = -1;
  /// The config.json this came from, to be written back as it was; empty for a new model.
  std::string source_json;
};

/// What a run decides about a model, beside its shape.
struct BuildOptions {
  Dtype dtype = Dtype::kF32;
  /// Positions that will be used: the rows of the rotation table. 0: config.max_positions.
  std::int64_t max_positions = 0;
  bool recompute = false;  ///< full-block recompute
  double dropout = 0;      ///< on the embedding and on both residual branches
};

/// A model as stages from tokens to loss. stages.front() is the Embedding, stages.back() the head;
/// a stage between them is a block or the final norm. Owns everything its layers point to.
struct Model {
  ModelConfig config;
  BuildOptions options;
  std::vector<std::unique_ptr<Constant>> constants;
  std::vector<std::string> stage_names;
  std::vector<std::unique_ptr<Layer>> stages;
  LinearCrossEntropy* head = nullptr;

  void visit(ParamVisitor& visitor) const;
};

/// Trainable parameters, each once however often it is shared, and those among them that are
/// position embeddings (FLOP counts leave them out).
struct ParameterCount {
  std::int64_t total = 0;
  std::int64_t position = 0;
};
ParameterCount count_parameters(const Model& model);

/// Floating-point operations of training on one token at sequence length T, as in MFU:
/// 6 N + 6 L T Q, N without position embeddings, Q = heads * head_dim; the second term is causal
/// attention, half of the full square (Chowdhery et al. 2022, appendix B).
double flops_per_token(const Model& model, std::int64_t sequence_length);
/// That formula as a line for people.
std::string flops_formula();

}  // namespace atl::nn
