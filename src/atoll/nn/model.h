#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/nn/embedding.h"
#include "atoll/nn/expert_load.h"
#include "atoll/nn/head.h"
#include "atoll/nn/layer.h"
#include "atoll/ops/rope/rope.h"
#include "atoll/tensor/sequence_part.h"

namespace atl::nn {

/// How rotary frequencies change so that a model reads further than it was first trained to.
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,    ///< all are divided by `factor` (Chen et al. 2023, "position interpolation")
    kLlama3,    ///< slow ones are divided, fast ones stay, between them a blend (Llama 3.1)
    kYarn,      ///< the same with bounds in turns over the original context (Peng et al. 2023)
    kLongrope,  ///< each is divided by a number of its own (Ding et al. 2024)
  };
  Kind kind = Kind::kNone;
  double factor = 1;
  // Of kLlama3. Slow is a wavelength above original_max_positions / low_freq_factor, fast one below
  // original_max_positions / high_freq_factor.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  /// Of all but kLinear: the positions that the model was first trained on.
  std::int64_t original_max_positions = 0;
  /// Multiplies cosines and sines, so that scores grow by its square.
  double attention_factor = 1;
  // Of kYarn: frequencies that turn more often than beta_fast over original_max_positions stay,
  // those that turn less often than beta_slow are divided by `factor`. `truncate`: the bounds are
  // whole indices of frequencies.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  // Of kLongrope, head_dim / 2 each: for contexts up to original_max_positions, and longer ones.
  std::vector<double> short_factors;
  std::vector<double> long_factors;
};

/// The experts that stand in for a block's MLP, of which each token goes through a few.
struct ExpertShape {
  std::int64_t num_experts = 0;  ///< 0: the model has none
  std::int64_t top_k = 0;        ///< experts of a token
  std::int64_t intermediate_size = 0;
  bool normalize = true;  ///< a token's weights are divided by their sum
  /// config.json's router_aux_loss_coef: what a run weighs the load-balance loss with unless it
  /// says otherwise.
  double balance_loss = 0;
  /// Which blocks have a plain MLP; empty: none.
  std::vector<bool> dense_layers;

  bool has_experts(std::int64_t layer) const {
    return num_experts > 0 &&
           (dense_layers.empty() || !dense_layers[static_cast<std::size_t>(layer)]);
  }
};

/// The shape of a decoder-only language model, whatever its family. Field meanings are those of
/// Hugging Face's config.json.
struct ModelConfig {
  std::string family;  ///< config.json's model_type: "llama", "mistral", "qwen2", "gpt2", ...
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  ops::HeadLayout heads;
  std::int64_t intermediate_size = 0;
  std::int64_t max_positions = 0;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  /// Elements of a head that rotate, the first; 0: all, as the family says or as is its habit.
  std::int64_t rotary_dim = 0;
  /// rope_theta of layers with a window, which have no scaling; 0: they are as the others.
  double local_rope_theta = 0;
  /// Which layers do not rotate; empty: none.
  std::vector<bool> unrotated_layers;
  /// Keys that a query of a windowed layer sees, its own included; 0: no layer has a window.
  std::int64_t sliding_window = 0;
  /// Which layers have the window; empty: all of them.
  std::vector<bool> windowed_layers;
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool tie_embeddings = false;
  bool attention_bias = false;  ///< on the query, key, value and output projections
  bool qkv_bias = false;        ///< on all of these but the output
  bool qk_norm = false;         ///< RMSNorm over each query and key head, before they rotate
  bool mlp_bias = false;
  ExpertShape experts;
  std::string activation;
  double embedding_scale = 1;    ///< multiplies what the embedding gives
  double residual_scale = 1;     ///< multiplies what a branch adds to the residual stream
  double attention_scale = 0;    ///< multiplies scores; 0: 1 / sqrt(head_dim)
  double logits_scale = 1;       ///< multiplies logits
  double attention_softcap = 0;  ///< c: scores become c tanh(score / c); 0: they stay
  double logits_softcap = 0;     ///< likewise of logits
  std::int64_t bos_token = -1;   ///< -1: the model has none
  std::int64_t eos_token = -1;
  /// The config.json this came from, to be written back as it was; empty for a new model.
  std::string source_json;

  double score_scale() const {
    return attention_scale != 0 ? attention_scale
                                : 1.0 / std::sqrt(static_cast<double>(heads.head_dim));
  }
  bool rotates(std::int64_t layer) const {
    return unrotated_layers.empty() || !unrotated_layers[static_cast<std::size_t>(layer)];
  }
  /// The window of layer `layer`; 0: it sees everything before.
  std::int64_t window(std::int64_t layer) const {
    if (windowed_layers.empty()) return sliding_window;
    return windowed_layers[static_cast<std::size_t>(layer)] ? sliding_window : 0;
  }
};

/// What a block computes again in the backward pass instead of keeping it.
enum class RecomputeMode {
  kNone,
  kSelective,  ///< the MLP branch, which holds most of a block's activations
  kFull,       ///< the whole block
};

/// What a run decides about the experts of a model.
struct ExpertOptions {
  double balance_loss = -1;    ///< weight of the load-balance loss; -1: that of the model's shape
  double z_loss = 0;           ///< weight of the router's z-loss
  double capacity_factor = 0;  ///< tokens that an expert takes, over an even share; 0: all
};

/// How attention reaches all of a sequence where ranks have parts of it.
enum class ContextAttention {
  kAuto,     ///< kUlysses where the ranks can share the heads evenly, else kRing
  kUlysses,  ///< all-to-all: all rows of a part of the heads; see nn/ulysses.h
  kRing,     ///< keys and values go round; see nn/ring_attention.h
};

/// What a run decides about a model, beside its shape.
struct BuildOptions {
  Dtype dtype = Dtype::kF32;
  /// Positions that will be used: the rows of the rotation table. 0: config.max_positions.
  std::int64_t max_positions = 0;
  RecomputeMode recompute = RecomputeMode::kNone;
  /// Sizes of the model that initial values and learning rates were chosen for, where these scale
  /// with width (muP, see nn/models/parametrisation.h); 0: they do not.
  std::int64_t mup_base_width = 0;
  std::int64_t mup_base_head_dim = 0;
  double dropout = 0;  ///< on the embedding and on both residual branches
  ExpertOptions experts = {};
  /// Ranks that share each product, and this one among them: the model then has the parameters of
  /// this rank, and its layers need Model::tensor connected.
  int tensor_size = 1;
  int tensor_rank = 0;
  /// Ranks that have a part of each sequence, and this one among them; layers need Model::context
  /// connected, and batches have positions.
  int context_size = 1;
  int context_rank = 0;
  ContextAttention context_attention = ContextAttention::kAuto;  ///< a Model's own is never kAuto
  /// Ranks that have some of the experts of each block, and this one among them: the model then has
  /// this rank's experts and all else, and its layers need Model::expert connected. With
  /// tensor_size it has a share of the products of each of these experts.
  int expert_size = 1;
  int expert_rank = 0;
  /// Where the model will compute: how large some pieces of scratch are hangs on it, and what is
  /// kept.
  DeviceKind device = DeviceKind::kCpu;

  /// Whether the backward pass finds what norms and activations gave, rather than make it again:
  /// a GPU's memory is slow beside its arithmetic. Changes no bit.
  bool keep_all() const {
    return device == DeviceKind::kCuda && recompute != RecomputeMode::kSelective;
  }

  /// The tokens of each sequence that this rank has; context_attention is not kAuto.
  SequencePart sequence_part() const {
    const bool is_ring = context_size > 1 && context_attention == ContextAttention::kRing;
    return {is_ring ? SequenceOrder::kZigzag : SequenceOrder::kContiguous, context_size,
            context_rank};
  }
};

/// The options with one of the others in the place of ContextAttention::kAuto.
BuildOptions with_context_attention(const ModelConfig& config, BuildOptions options);

/// Parameters, each once however often it is shared; those among them that are position embeddings
/// (FLOP counts leave them out), those that are frozen, and those that a token leaves out.
struct ParameterCount {
  std::int64_t total = 0;
  std::int64_t position = 0;
  std::int64_t frozen = 0;
  std::int64_t idle = 0;  ///< of the total, what a token does not go through: others' experts
  std::int64_t idle_frozen = 0;  ///< of these, the frozen ones
};

/// A model as stages from tokens to loss. stages.front() is the embedding, stages.back() the head;
/// a stage between them is a block or the final norm. Owns everything its layers point to. On a
/// rank of a pipeline, some of these stages: see parallel::keep_stages.
struct Model {
  ModelConfig config;
  BuildOptions options;
  std::unique_ptr<Axis> tensor;     ///< the ranks that share each product
  std::unique_ptr<Axis> kv_copies;  ///< of these, the ranks that have the same key-value heads
  std::unique_ptr<Axis> context;    ///< the ranks that have a part of each sequence
  std::unique_ptr<Axis> expert;     ///< the ranks that have some of the experts each
  /// The ranks of `tensor` and `expert` together, those of `tensor` neighbours: what parameters are
  /// cut among.
  std::unique_ptr<Axis> parts;
  std::vector<std::unique_ptr<Constant>> constants;
  /// What the routers of blocks with experts have done, by block; empty where there are none.
  std::vector<std::unique_ptr<ExpertLoad>> expert_loads;
  std::vector<std::string> stage_names;
  std::vector<std::unique_ptr<Layer>> stages;
  /// Null where another rank of a pipeline has it, or ranks share the vocabulary.
  LinearCrossEntropy* head = nullptr;
  /// Stages that another rank of a pipeline runs, whose parameters a stage here shares: the
  /// embedding of a tied head. Nothing here runs or visits them.
  std::vector<std::unique_ptr<Layer>> elsewhere = {};
  /// The parameters that other ranks of a pipeline have, and this one has not.
  ParameterCount elsewhere_count = {};

  void visit(ParamVisitor& visitor) const;
};

/// Of the whole model, where this rank has a part of it.
ParameterCount count_parameters(const Model& model);

/// Floating-point operations of training on one token at sequence length T, as in MFU:
/// 6 N + 6 L T Q, N without position embeddings, Q = heads * head_dim; the second term is causal
/// attention, half of the full square (Chowdhery et al. 2022, appendix B). N counts of the experts
/// those that a token goes through. A frozen parameter counts 4: it has no weight gradient. A layer
/// with a window of W < T counts the keys that its queries see: 2 W - W^2 / T in place of T.
double flops_per_token(const Model& model, std::int64_t sequence_length);
/// That formula as a line for people.
std::string flops_formula(const Model& model);

}  // namespace atl::nn
