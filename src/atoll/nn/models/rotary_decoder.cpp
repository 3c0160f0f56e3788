#include "atoll/nn/models/rotary_decoder.h"

#include <algorithm>
#include <cmath>

#include "atoll/nn/attention.h"
#include "atoll/nn/mlp.h"
#include "atoll/nn/models/assemble.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/expert_parts.h"
#include "atoll/nn/models/parametrisation.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/models/tensor_split.h"
#include "atoll/nn/norm.h"
#include "atoll/nn/sequential.h"

namespace atl::nn {

ModelConfig read_decoder(ConfigReader& reader, const std::string& origin, const char* family,
                         const DecoderDefaults& defaults) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.num_layers = reader.integer("num_hidden_layers");
  ops::HeadLayout& heads = config.heads;
  heads.num_heads = reader.integer("num_attention_heads");
  // Absent is the family's default; null, one for each query head, is older than defaults.
  heads.num_kv_heads = !reader.contains("num_key_value_heads") && defaults.num_kv_heads > 0
                           ? defaults.num_kv_heads
                           : reader.integer("num_key_value_heads", heads.num_heads);
  config.intermediate_size = reader.integer("intermediate_size");
  config.max_positions = reader.integer("max_position_embeddings", defaults.max_positions);
  config.norm_eps = reader.number("rms_norm_eps", defaults.norm_eps);
  config.initializer_range = reader.number("initializer_range", 0.02);
  config.tie_embeddings = reader.boolean("tie_word_embeddings", false);
  config.activation = reader.text("hidden_act", "silu");
  reader.only("hidden_act", "\"silu\"");
  config.rope_theta = defaults.rope_theta;
  read_rope(reader, config);
  if (heads.num_heads > 0) {
    const std::int64_t even_split =
        defaults.head_dim > 0 ? defaults.head_dim : config.hidden_size / heads.num_heads;
    heads.head_dim = reader.integer("head_dim", even_split);
    if (even_split == 0 && reader.is_null("head_dim")) {
      throw reader.refused("num_attention_heads",
                           fmt::format("more than hidden_size, {}", config.hidden_size));
    }
  }
  ignore_bookkeeping(reader);
  validate(config, origin);
  read_token_ids(reader, config);
  if (heads.head_dim % 2 != 0) {
    throw user_error("{}: head_dim ({}) must be even: positions rotate pairs of elements", origin,
                     heads.head_dim);
  }
  return config;
}

namespace {

constexpr const char* kWindowed = "sliding_attention";
constexpr const char* kFull = "full_attention";

// One form for one meaning: no windows, all layers, or a list that has both.
void simplify_windows(ModelConfig& config) {
  const std::vector<bool>& layers = config.windowed_layers;
  if (layers.empty()) return;
  const auto count = std::count(layers.begin(), layers.end(), true);
  if (count == 0) config.sliding_window = 0;
  if (count == 0 || count == config.num_layers) config.windowed_layers.clear();
}

}  // namespace

void read_layer_types(ConfigReader& reader, ModelConfig& config) {
  const std::vector<std::string> types = reader.texts("layer_types");
  if (!reader.contains("layer_types") || types.empty()) return;
  if (static_cast<std::int64_t>(types.size()) != config.num_layers) {
    throw reader.refused("layer_types",
                         fmt::format("which are {} layers, but \"num_hidden_layers\" is {}",
                                     types.size(), config.num_layers));
  }
  config.windowed_layers.clear();
  for (const std::string& type : types) {
    if (type != kWindowed && type != kFull) {
      throw reader.refused("layer_types",
                           "and atoll computes only \"full_attention\" and "
                           "\"sliding_attention\"");
    }
    if (type == kWindowed && config.sliding_window == 0) {
      throw reader.refused("layer_types", "but the other fields say that no layer has a window");
    }
    config.windowed_layers.push_back(type == kWindowed);
  }
  simplify_windows(config);
}

void read_windows_by_layer(ConfigReader& reader, ModelConfig& config) {
  const bool use = reader.boolean("use_sliding_window", false);
  const std::int64_t window =
      reader.contains("sliding_window") ? reader.integer("sliding_window", 0) : 4096;
  const std::int64_t first = reader.integer("max_window_layers", 28);
  if (use && window < 1) {
    throw reader.refused("sliding_window", "but \"use_sliding_window\" is true; give a width");
  }
  config.sliding_window = use ? window : 0;
  if (use) {
    for (std::int64_t i = 0; i < config.num_layers; ++i) {
      config.windowed_layers.push_back(i >= first);
    }
  }
  read_layer_types(reader, config);
  simplify_windows(config);
}

namespace {

Param norm_scale(const ModelConfig& config, Dtype dtype, std::string name) {
  return make_param(std::move(name), {dtype, {config.hidden_size}}, Init::one(), /*decay=*/false);
}

std::unique_ptr<Layer> make_norm(const ModelConfig& config, Dtype dtype, const TensorSplit& split,
                                 std::string name) {
  return std::make_unique<RmsNorm>(config.norm_eps,
                                   split.all(norm_scale(config, dtype, std::move(name))));
}

// The branches' last products start smaller, so that the residual stream's variance does not grow
// with depth (Radford et al. 2019, section 2.3).
double residual_stddev(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

std::unique_ptr<Layer> make_attention(const ModelConfig& config, Dtype dtype,
                                      const TensorSplit& split, const Parametrisation& sizes,
                                      const Constant* rope_table, const std::string& at,
                                      int index) {
  const ops::HeadLayout& heads = config.heads;
  Param out_bias;
  Linear qkv = split.qkv(sizes.query_key_value(make_linear_params(
      dtype,
      {{at + "q_proj", heads.query_width()},
       {at + "k_proj", heads.kv_width()},
       {at + "v_proj", heads.kv_width()}},
      config.hidden_size, config.initializer_range, config.attention_bias || config.qkv_bias)));
  Linear out =
      split.heads_out(sizes.hidden(make_linear_params(dtype, {{at + "o_proj", config.hidden_size}},
                                                      heads.query_width(), residual_stddev(config),
                                                      config.attention_bias)),
                      out_bias);
  const auto head_norm = [&](const char* name) {
    return make_param(at + name, {dtype, {heads.head_dim}}, Init::one(), /*decay=*/false);
  };
  Param q_norm, k_norm;
  if (config.qk_norm) {
    q_norm = split.all(sizes.query_norm(head_norm("q_norm.weight")));
    k_norm = split.all(head_norm("k_norm.weight"));
  }
  const SelfAttention::Options options = {
      .heads = split.heads(),
      .scale = 1.0 / std::sqrt(static_cast<double>(heads.head_dim)),
      .rope_table = rope_table,
      .index = index,
      .window = config.window(index),
      .qk_norm_eps = config.norm_eps};
  return split.branch(
      std::make_unique<SelfAttention>(options, std::move(qkv), std::move(out), std::move(q_norm),
                                      std::move(k_norm), split.attention_core()),
      std::move(out_bias));
}

std::unique_ptr<Layer> make_mlp(const ModelConfig& config, const BuildOptions& options,
                                const TensorSplit& split, const Parametrisation& sizes,
                                const std::string& at) {
  const Dtype dtype = options.dtype;
  Param out_bias;
  Linear gate_up = split.mlp_in(sizes.hidden(make_linear_params(
                                    dtype,
                                    {{at + "gate_proj", config.intermediate_size},
                                     {at + "up_proj", config.intermediate_size}},
                                    config.hidden_size, config.initializer_range, config.mlp_bias)),
                                /*num_parts=*/2);
  Linear down =
      split.mlp_out(sizes.hidden(make_linear_params(dtype, {{at + "down_proj", config.hidden_size}},
                                                    config.intermediate_size,
                                                    residual_stddev(config), config.mlp_bias)),
                    out_bias);
  return split.branch(
      std::make_unique<SwigluMlp>(std::move(gate_up), std::move(down), options.keep_all()),
      std::move(out_bias));
}

// `load` is null where the block has a plain MLP.
std::unique_ptr<Layer> make_block(const ModelConfig& config, const BuildOptions& options,
                                  const TensorSplit& split, const Constant* rope_table, int index,
                                  const ExpertNames& names, ExpertLoad* load) {
  const std::string at = fmt::format("model.layers.{}.", index);
  const Dtype dtype = options.dtype;
  const Parametrisation sizes(config, options);
  std::vector<std::unique_ptr<Layer>> block;
  block.push_back(make_residual(
      make_norm(config, dtype, split, at + "input_layernorm.weight"),
      make_attention(config, dtype, split, sizes, rope_table, at + "self_attn.", index), options,
      2 * index + 1));
  auto mlp = load == nullptr
                 ? make_mlp(config, options, split, sizes, at + "mlp.")
                 : make_experts(config, options, split, names, at, residual_stddev(config), load);
  block.push_back(
      make_residual(make_norm(config, dtype, split, at + "post_attention_layernorm.weight"),
                    std::move(mlp), options, 2 * index + 2));
  return std::make_unique<Sequential>(std::move(block));
}

}  // namespace

std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options, {});
}

std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const ExpertNames& names) {
  const Dtype dtype = options.dtype;
  const Spec table = {dtype, {config.vocab_size, config.hidden_size}};
  const Init init = Init::normal(config.initializer_range);
  TensorSplit split(config, options);
  TensorEnds ends = split.ends(
      make_param("model.embed_tokens.weight", table, init, /*decay=*/true), {},
      config.tie_embeddings ? Param{} : make_param("lm_head.weight", table, init, /*decay=*/true));

  const std::int64_t positions =
      options.max_positions > 0 ? options.max_positions : config.max_positions;
  std::vector<std::unique_ptr<Constant>> constants;
  constants.push_back(make_rope_table(compute_dtype(dtype), positions, config.heads.head_dim,
                                      config.rope_theta, config.rope_scaling));
  std::vector<std::unique_ptr<Layer>> blocks;
  std::vector<std::unique_ptr<ExpertLoad>> loads;
  for (int i = 0; i < config.num_layers; ++i) {
    const bool has_experts = config.experts.has_experts(i);
    if (has_experts) {
      loads.push_back(std::make_unique<ExpertLoad>(i, config.experts.num_experts));
    }
    blocks.push_back(make_block(config, options, split, constants.front().get(), i, names,
                                has_experts ? loads.back().get() : nullptr));
  }
  auto norm = std::make_unique<RmsNorm>(
      config.norm_eps, split.all(Parametrisation(config, options)
                                     .final_norm(norm_scale(config, dtype, "model.norm.weight"))));
  auto model = assemble(config, options, std::move(constants), split, std::move(ends),
                        std::move(blocks), std::move(norm));
  model->expert_loads = std::move(loads);
  return model;
}

}  // namespace atl::nn
