#include "atoll/nn/models/rotary_decoder.h"

#include <algorithm>
#include <cmath>

#include "atoll/nn/attention.h"
#include "atoll/nn/mlp.h"
#include "atoll/nn/models/assemble.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/deepseek/latent_parts.h"
#include "atoll/nn/models/expert_parts.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/parametrisation.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/models/tensor_split.h"
#include "atoll/nn/norm.h"
#include "atoll/nn/parallel_residual.h"
#include "atoll/nn/scale.h"
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
  config.norm_eps = reader.number(defaults.norm_eps_field, defaults.norm_eps);
  config.initializer_range = reader.number("initializer_range", 0.02);
  config.tie_embeddings = reader.boolean("tie_word_embeddings", defaults.tie_embeddings);
  config.activation = reader.text(defaults.activation_field, defaults.activation);
  reader.only(defaults.activation_field, fmt::format("\"{}\"", defaults.activation));
  config.rope_theta = defaults.rope_theta;
  config.local_rope_theta = defaults.local_rope_theta;
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
  check_quantised(reader);
  validate(config, origin);
  read_token_ids(reader, config);
  if (heads.head_dim % 2 != 0) {
    throw user_error("{}: head_dim ({}) must be even: positions rotate pairs of elements", origin,
                     heads.head_dim);
  }
  if (find_family(family, origin).has_partial_rotation) {
    read_rotary_part(reader, config, defaults.rotary_part);
  } else {
    reader.only("partial_rotary_factor", "1.0");
    read_rotary_part(reader, config, 1);
    if (config.rotary_dim != heads.head_dim) {
      throw reader.refused("rope_parameters", "but all of a head rotates in this family");
    }
    config.rotary_dim = 0;
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

// A weight with which the norm begins as one that changes nothing but the size.
Param norm_weight(std::string name, const Spec& spec, double offset) {
  return make_param(std::move(name), spec, offset == 1 ? Init::zero() : Init::one(),
                    /*decay=*/false);
}

// A norm of whole rows; a layer norm's bias is called as its weight is.
std::unique_ptr<Layer> row_norm(const ModelConfig& config, const DecoderForm& form,
                                const TensorSplit& split, Param weight) {
  if (!form.layer_norm) {
    return std::make_unique<RmsNorm>(ops::RmsScale(config.norm_eps, form.norm_offset),
                                     split.all(std::move(weight)));
  }
  constexpr std::string_view kWeight = "weight";
  std::string name = weight.name.substr(0, weight.name.size() - kWeight.size()) + "bias";
  Param bias = make_param(std::move(name), weight.spec, Init::zero(), /*decay=*/false);
  return std::make_unique<LayerNorm>(config.norm_eps, split.all(std::move(weight)),
                                     split.all(std::move(bias)));
}

// The rotations of a model's layers.
struct RopeTables {
  const Constant* all = nullptr;
  const Constant* windowed = nullptr;  // of layers with a window, where they have their own

  const Constant* of_layer(const ModelConfig& config, std::int64_t layer) const {
    if (!config.rotates(layer)) return nullptr;
    return windowed != nullptr && config.window(layer) > 0 ? windowed : all;
  }
};

RopeTables make_rope_tables(const ModelConfig& config, const BuildOptions& options,
                            std::vector<std::unique_ptr<Constant>>& constants) {
  const std::int64_t positions =
      options.max_positions > 0 ? options.max_positions : config.max_positions;
  const std::int64_t width = config.rotary_dim > 0 ? config.rotary_dim : config.heads.head_dim;
  const auto add = [&](double theta, const RopeScaling& scaling) {
    constants.push_back(
        make_rope_table(compute_dtype(options.dtype), positions, width, theta, scaling));
    return constants.back().get();
  };
  RopeTables tables;
  tables.all = add(config.rope_theta, config.rope_scaling);
  if (config.local_rope_theta > 0) tables.windowed = add(config.local_rope_theta, {});
  return tables;
}

// The branches' last products start smaller, so that the residual stream's variance does not grow
// with depth (Radford et al. 2019, section 2.3).
double residual_stddev(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

// One model's decoder blocks: what all of them share.
class Blocks {
 public:
  Blocks(const ModelConfig& config, const BuildOptions& options, const DecoderForm& form,
         const TensorSplit& split, const RopeTables& rope)
      : config_(config), options_(options), form_(form), split_(split), rope_(rope) {}

  /// `load` is null where the block has a plain MLP.
  std::unique_ptr<Layer> make(int index, ExpertLoad* load) const {
    const std::string at = fmt::format("{}{}.", form_.block, index);
    auto mlp = load == nullptr ? make_mlp(at)
                               : make_experts(config_, options_, split_, *form_.experts, at,
                                              residual_stddev(config_), load);
    std::vector<std::unique_ptr<Layer>> block;
    block.push_back(add_branch(at, form_.attention_norm, make_attention(at, index),
                               form_.attention_out_norm, 2 * index + 1));
    block.push_back(
        add_branch(at, form_.mlp_norm, std::move(mlp), form_.mlp_out_norm, 2 * index + 2));
    if (form_.parallel_residual) {
      return std::make_unique<ParallelResidual>(std::move(block[0]), std::move(block[1]));
    }
    return std::make_unique<Sequential>(std::move(block));
  }

 private:
  // x + scale * out_norm(branch(norm(x))); without "x +" where branches are parallel.
  std::unique_ptr<Layer> add_branch(const std::string& at, const char* norm,
                                    std::unique_ptr<Layer> branch, const char* out_norm,
                                    int index) const {
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(std::move(branch));
    if (out_norm != nullptr) layers.push_back(block_norm(at, out_norm));
    if (config_.residual_scale != 1) {
      layers.push_back(std::make_unique<Scale>(config_.residual_scale));
    }
    if (layers.size() > 1) {
      branch = std::make_unique<Sequential>(std::move(layers), options_.keep_all());
    } else {
      branch = std::move(layers.front());
    }
    auto in_norm = norm == nullptr ? nullptr : block_norm(at, norm);
    return form_.parallel_residual
               ? make_branch(std::move(in_norm), std::move(branch), options_, index)
               : make_residual(std::move(in_norm), std::move(branch), options_, index);
  }
  std::unique_ptr<Layer> block_norm(const std::string& at, const char* name) const {
    return row_norm(config_, form_, split_,
                    norm_weight(fmt::format("{}{}.weight", at, name),
                                {options_.dtype, {config_.hidden_size}}, form_.norm_offset));
  }

  LinearParams linear(const std::vector<LinearPart>& parts, std::int64_t in, double stddev,
                      bool bias) const {
    return make_linear_params(options_.dtype, parts, in, stddev, bias);
  }

  std::unique_ptr<Layer> make_attention(const std::string& block, int index) const {
    if (form_.latent != nullptr) {
      return make_latent_attention(config_, *form_.latent, options_, split_,
                                   rope_.of_layer(config_, index), block + form_.attention, index,
                                   residual_stddev(config_));
    }
    const ops::HeadLayout& heads = config_.heads;
    const Parametrisation sizes(config_, options_);
    const std::string at = block + form_.attention;
    const std::vector<LinearPart> apart = {{at + "q_proj", heads.query_width()},
                                           {at + "k_proj", heads.kv_width()},
                                           {at + "v_proj", heads.kv_width()}};
    const std::vector<LinearPart> fused = {
        {block + (form_.qkv != nullptr ? form_.qkv : ""), heads.qkv_width()}};
    Param out_bias;
    LinearParams qkv_params =
        linear(form_.qkv != nullptr ? fused : apart, config_.hidden_size, config_.initializer_range,
               config_.attention_bias || config_.qkv_bias);
    // Ranks that share heads evenly share rows evenly where a head's rows are together.
    Linear qkv = form_.qkv_by_head
                     ? split_.mlp_in(sizes.hidden(std::move(qkv_params)), /*num_parts=*/1)
                     : split_.qkv(sizes.query_key_value(std::move(qkv_params)));
    Linear out = split_.heads_out(
        sizes.hidden(linear({{at + form_.attention_out, config_.hidden_size}}, heads.query_width(),
                            residual_stddev(config_), config_.attention_bias)),
        out_bias);
    const auto head_norm = [&](const char* name, std::int64_t row) {
      const std::int64_t width = form_.qk_norm_of_rows ? row : heads.head_dim;
      return norm_weight(at + name, {options_.dtype, {width}}, form_.norm_offset);
    };
    Param q_norm, k_norm;
    if (config_.qk_norm) {
      q_norm = split_.all(sizes.query_norm(head_norm("q_norm.weight", heads.query_width())));
      k_norm = split_.all(head_norm("k_norm.weight", heads.kv_width()));
    }
    Param sinks;
    if (form_.attention_sinks) {
      sinks = split_.of_heads(make_param(at + "sinks", {options_.dtype, {heads.num_heads}},
                                         Init::normal(config_.initializer_range),
                                         /*decay=*/false));
    }
    const SelfAttention::Options options = {.heads = split_.heads(),
                                            .scale = config_.score_scale(),
                                            .softcap = config_.attention_softcap,
                                            .rope_table = rope_.of_layer(config_, index),
                                            .rotary_pairs = form_.rotary_pairs,
                                            .qkv_by_head = form_.qkv_by_head,
                                            .index = index,
                                            .window = config_.window(index),
                                            .qk_norm = {config_.norm_eps, form_.norm_offset}};
    return split_.branch(std::make_unique<SelfAttention>(options, std::move(qkv), std::move(out),
                                                         std::move(q_norm), std::move(k_norm),
                                                         split_.attention_core(), std::move(sinks)),
                         std::move(out_bias));
  }

  std::unique_ptr<Layer> make_mlp(const std::string& block) const {
    const std::int64_t width = config_.intermediate_size;
    const Parametrisation sizes(config_, options_);
    Param out_bias;
    Linear down =
        split_.mlp_out(sizes.hidden(linear({{block + form_.mlp_down, config_.hidden_size}}, width,
                                           residual_stddev(config_), config_.mlp_bias)),
                       out_bias);
    if (form_.plain_mlp != nullptr) {
      Linear in =
          split_.mlp_in(sizes.hidden(linear({{block + form_.plain_mlp, width}}, config_.hidden_size,
                                            config_.initializer_range, config_.mlp_bias)),
                        /*num_parts=*/1);
      return split_.branch(std::make_unique<GeluMlp>(form_.gelu, std::move(in), std::move(down),
                                                     options_.keep_all()),
                           std::move(out_bias));
    }
    const std::vector<LinearPart> apart = {{block + "mlp.gate_proj", width},
                                           {block + "mlp.up_proj", width}};
    const std::vector<LinearPart> fused = {
        {block + (form_.gate_up != nullptr ? form_.gate_up : ""), 2 * width}};
    Linear gate_up = split_.mlp_in(
        sizes.hidden(linear(form_.gate_up != nullptr ? fused : apart, config_.hidden_size,
                            config_.initializer_range, config_.mlp_bias)),
        /*num_parts=*/2);
    return split_.branch(std::make_unique<GluMlp>(form_.glu, std::move(gate_up), std::move(down),
                                                  options_.keep_all()),
                         std::move(out_bias));
  }

  const ModelConfig& config_;
  const BuildOptions& options_;
  const DecoderForm& form_;
  const TensorSplit& split_;
  const RopeTables& rope_;
};

// A stage that a model scales: the embedding's rows, or what the head reads.
std::unique_ptr<Layer> scaled(std::unique_ptr<Layer> stage, double factor) {
  if (factor == 1) return stage;
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::move(stage));
  layers.push_back(std::make_unique<Scale>(factor));
  return std::make_unique<Sequential>(std::move(layers));
}

// muP gives queries initial values and a learning rate of their own, by their rows, which must come
// first.
void check_mup_queries(const ModelConfig& config, const BuildOptions& options,
                       const DecoderForm& form) {
  if (!form.qkv_by_head || options.mup_base_width == 0) return;
  if (options.mup_base_head_dim == config.heads.head_dim) return;
  throw user_error(
      "model.parametrisation is mup with a base head of {} elements, and this model's heads have "
      "{}: the family {} has queries, keys and values of each head side by side in one matrix, "
      "where atoll's muP does not scale queries apart; keep the width of heads as it is at the "
      "base width, and take more of them",
      options.mup_base_head_dim, config.heads.head_dim, config.family);
}

}  // namespace

std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options, {});
}

std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderForm& form) {
  if (config.qk_norm && form.qk_norm_of_rows && options.tensor_size > 1) {
    throw user_error(
        "parallel.tp = {}: models of the family {} norm the queries of all heads together, and "
        "atoll does that on one rank; leave parallel.tp out, and take dp.zero or parallel.cp "
        "(without adapters parallel.pp, too)",
        options.tensor_size, config.family);
  }
  check_mup_queries(config, options, form);
  const Dtype dtype = options.dtype;
  const Spec table = {dtype, {config.vocab_size, config.hidden_size}};
  const Init init = Init::normal(config.initializer_range);
  TensorSplit split(config, options);
  TensorEnds ends = split.ends(
      make_param(fmt::format("{}.weight", form.embedding), table, init, /*decay=*/true), {},
      config.tie_embeddings
          ? Param{}
          : make_param(fmt::format("{}.weight", form.head), table, init, /*decay=*/true),
      config.logits_softcap);
  ends.embedding = scaled(std::move(ends.embedding), config.embedding_scale);

  std::vector<std::unique_ptr<Constant>> constants;
  const RopeTables rope = make_rope_tables(config, options, constants);
  const Blocks make_block(config, options, form, split, rope);
  std::vector<std::unique_ptr<Layer>> blocks;
  std::vector<std::unique_ptr<ExpertLoad>> loads;
  for (int i = 0; i < config.num_layers; ++i) {
    const bool has_experts = config.experts.has_experts(i);
    if (has_experts) {
      loads.push_back(std::make_unique<ExpertLoad>(i, config.experts.num_experts));
    }
    blocks.push_back(make_block.make(i, has_experts ? loads.back().get() : nullptr));
  }
  auto norm =
      row_norm(config, form, split,
               Parametrisation(config, options)
                   .final_norm(norm_weight(fmt::format("{}.weight", form.final_norm),
                                           {dtype, {config.hidden_size}}, form.norm_offset)));
  // A head of s x gives s times the logits.
  auto model = assemble(config, options, std::move(constants), split, std::move(ends),
                        std::move(blocks), scaled(std::move(norm), config.logits_scale));
  model->expert_loads = std::move(loads);
  return model;
}

}  // namespace atl::nn
