// GPT-2 (Radford et al. 2019): LayerNorm before each branch, learned positions, multi-head
// attention with biases, GELU with the tanh approximation, head tied to the token embedding.

#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/nn/attention.h"
#include "atoll/nn/mlp.h"
#include "atoll/nn/models/assemble.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/parametrisation.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/tensor_split.h"
#include "atoll/nn/norm.h"
#include "atoll/nn/sequential.h"

namespace atl::nn {

namespace {

constexpr GgufTensorName kGgufOutside[] = {{"token_embd", "transformer.wte"},
                                           {"position_embd", "transformer.wpe"},
                                           {"output_norm", "transformer.ln_f", true},
                                           {"output", "lm_head"}};
constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "ln_1", true},
    {"attn_qkv", "attn.c_attn", true, GgufOrder::kTransposed},
    {"attn_output", "attn.c_proj", true, GgufOrder::kTransposed},
    {"ffn_norm", "ln_2", true},
    {"ffn_up", "mlp.c_fc", true, GgufOrder::kTransposed},
    {"ffn_down", "mlp.c_proj", true, GgufOrder::kTransposed},
};

void check_gguf_activation(const ModelConfig& config, const std::string& origin,
                           GgufSettings& /*to*/) {
  if (config.activation == "gelu_new") return;
  throw user_error(
      "{}: \"activation_function\" is \"{}\", and llama.cpp computes only \"gelu_new\"; export "
      "as hf",
      origin, config.activation);
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config;
  config.family = "gpt2";
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("n_embd");
  config.num_layers = reader.integer("n_layer");
  config.heads.num_heads = reader.integer("n_head");
  config.heads.num_kv_heads = config.heads.num_heads;
  config.max_positions = reader.integer("n_positions", 1024);
  config.intermediate_size = reader.integer("n_inner", 4 * config.hidden_size);
  config.norm_eps = reader.number("layer_norm_epsilon", 1e-5);
  config.initializer_range = reader.number("initializer_range", 0.02);
  config.tie_embeddings = reader.boolean("tie_word_embeddings", true);
  config.attention_bias = true;
  config.mlp_bias = true;
  config.activation = reader.text("activation_function", "gelu_new");
  if (config.activation != "gelu_new" && config.activation != "gelu") {
    throw user_error(
        "{}: \"activation_function\" is \"{}\", and atoll computes gpt2 only with \"gelu_new\" or "
        "\"gelu\"",
        origin, config.activation);
  }
  reader.only("scale_attn_weights", "true");
  reader.only("scale_attn_by_inverse_layer_idx", "false");
  reader.only("add_cross_attention", "false");
  // An old name of n_positions, which transformers ignores too; and f32 for scores that are f16,
  // which atoll's never are.
  reader.ignore({"n_ctx", "reorder_and_upcast_attn"});
  check_quantised(reader);
  if (config.heads.num_heads > 0) {
    if (config.hidden_size % config.heads.num_heads != 0) {
      throw user_error("{}: n_embd ({}) must be a multiple of n_head ({})", origin,
                       config.hidden_size, config.heads.num_heads);
    }
    config.heads.head_dim = config.hidden_size / config.heads.num_heads;
  }
  validate(config, origin);
  read_token_ids(reader, config);
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  nlohmann::ordered_json json = {
      {"activation_function", config.activation.empty() ? "gelu_new" : config.activation},
      {"architectures", {"GPT2LMHeadModel"}},
      {"attn_pdrop", 0.0},
      {"bos_token_id", nullptr},
      {"embd_pdrop", 0.0},
      {"eos_token_id", nullptr},
      {"initializer_range", config.initializer_range},
      {"layer_norm_epsilon", config.norm_eps},
      {"model_type", "gpt2"},
      {"n_embd", config.hidden_size},
      {"n_head", config.heads.num_heads},
      {"n_inner", config.intermediate_size},
      {"n_layer", config.num_layers},
      {"n_positions", config.max_positions},
      {"resid_pdrop", 0.0},
      {"tie_word_embeddings", config.tie_embeddings},
      {"torch_dtype", "float32"},
      {"vocab_size", config.vocab_size},
  };
  if (config.bos_token >= 0) json["bos_token_id"] = config.bos_token;
  if (config.eos_token >= 0) json["eos_token_id"] = config.eos_token;
  return json.dump(2) + "\n";
}

struct NormParams {
  Param scale, shift;
};
NormParams norm_params(const ModelConfig& config, Dtype dtype, const std::string& name) {
  const Spec spec = {dtype, {config.hidden_size}};
  return {make_param(name + ".weight", spec, Init::one(), /*decay=*/false),
          make_param(name + ".bias", spec, Init::zero(), /*decay=*/false)};
}

std::unique_ptr<Layer> make_norm(const ModelConfig& config, const TensorSplit& split,
                                 NormParams params) {
  return std::make_unique<LayerNorm>(config.norm_eps, split.all(std::move(params.scale)),
                                     split.all(std::move(params.shift)));
}

std::unique_ptr<Layer> make_block(const ModelConfig& config, const BuildOptions& options,
                                  const TensorSplit& split, int index) {
  const std::string at = fmt::format("transformer.h.{}.", index);
  const Dtype dtype = options.dtype;
  const std::int64_t width = config.hidden_size;
  const double stddev = config.initializer_range;
  const double residual_stddev = stddev / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  const Parametrisation sizes(config, options);
  const auto conv1d = [&](const char* name, std::int64_t in, std::int64_t out, double spread) {
    return make_linear_params(dtype, {{at + name, out}}, in, spread, /*bias=*/true,
                              /*transposed=*/true);
  };

  Param attention_bias;
  auto attention = std::make_unique<SelfAttention>(
      SelfAttention::Options{.heads = split.heads(),
                             .scale = 1.0 / std::sqrt(static_cast<double>(config.heads.head_dim)),
                             .index = index},
      split.qkv(sizes.query_key_value(conv1d("attn.c_attn", width, 3 * width, stddev))),
      split.heads_out(sizes.hidden(conv1d("attn.c_proj", width, width, residual_stddev)),
                      attention_bias),
      Param{}, Param{}, split.attention_core());
  Param mlp_bias;
  auto mlp = std::make_unique<GeluMlp>(
      config.activation == "gelu" ? ops::Gelu::kErf : ops::Gelu::kTanh,
      split.mlp_in(sizes.hidden(conv1d("mlp.c_fc", width, config.intermediate_size, stddev)),
                   /*num_parts=*/1),
      split.mlp_out(
          sizes.hidden(conv1d("mlp.c_proj", config.intermediate_size, width, residual_stddev)),
          mlp_bias),
      options.keep_all());

  std::vector<std::unique_ptr<Layer>> block;
  block.push_back(make_residual(make_norm(config, split, norm_params(config, dtype, at + "ln_1")),
                                split.branch(std::move(attention), std::move(attention_bias)),
                                options, 2 * index + 1));
  block.push_back(make_residual(make_norm(config, split, norm_params(config, dtype, at + "ln_2")),
                                split.branch(std::move(mlp), std::move(mlp_bias)), options,
                                2 * index + 2));
  return std::make_unique<Sequential>(std::move(block));
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  const Dtype dtype = options.dtype;
  const Init init = Init::normal(config.initializer_range);
  const Spec table = {dtype, {config.vocab_size, config.hidden_size}};
  Param positions = make_param("transformer.wpe.weight",
                               {dtype, {config.max_positions, config.hidden_size}}, init,
                               /*decay=*/true);
  positions.is_position = true;
  TensorSplit split(config, options);
  TensorEnds ends = split.ends(
      make_param("transformer.wte.weight", table, init, /*decay=*/true), std::move(positions),
      config.tie_embeddings ? Param{} : make_param("lm_head.weight", table, init, /*decay=*/true));
  std::vector<std::unique_ptr<Layer>> blocks;
  for (int i = 0; i < config.num_layers; ++i) {
    blocks.push_back(make_block(config, options, split, i));
  }
  NormParams last = norm_params(config, dtype, "transformer.ln_f");
  const Parametrisation sizes(config, options);
  auto norm =
      make_norm(config, split,
                {sizes.final_norm(std::move(last.scale)), sizes.final_norm(std::move(last.shift))});
  return assemble(config, options, {}, split, std::move(ends), std::move(blocks), std::move(norm));
}

}  // namespace

Family gpt2_family() {
  static constexpr const char* kAliases[] = {"gpt", "gpt_2", "nanogpt", "gpt_2_small"};
  return {.model_type = "gpt2",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .norm = "layer_norm",
          .activation = "gelu",
          .has_gate = false,
          .transposed_linears = true,
          .has_rope = false,
          .has_even_heads = true,
          .aliases = kAliases,
          .sizes = {.hidden_size = "n_embd",
                    .num_layers = "n_layer",
                    .num_heads = "n_head",
                    .num_kv_heads = "n_head",
                    .head_dim = "n_embd / n_head",
                    .intermediate_size = "n_inner",
                    .max_positions = "n_positions"},
          .gguf = {.architecture = "gpt2",
                   .block = "transformer.h.",
                   .outside = kGgufOutside,
                   .inside = kGgufInside,
                   .write = check_gguf_activation}};
}

}  // namespace atl::nn
