#include "atoll/nn/models/deepseek/latent_parts.h"

#include <algorithm>

#include "atoll/nn/latent/latent_attention.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/tensor_split.h"

namespace atl::nn {

namespace {

// The norms of latent vectors have transformers' own epsilon, whatever "rms_norm_eps" says.
constexpr double kLatentEps = 1e-6;

}  // namespace

void set_latent_heads(const LatentShape& shape, ModelConfig& config) {
  config.heads.head_dim = shape.head_dim();
  config.heads.num_kv_heads = config.heads.num_heads;
  config.rotary_dim = shape.rotary_dim;
}

LatentShape read_latent(ConfigReader& reader, const LatentShape& defaults) {
  LatentShape shape = defaults;
  const auto read = [&](const char* field, std::int64_t& size, std::int64_t least) {
    constexpr std::int64_t kMost = 1 << 20;
    size = reader.integer(field, size);
    if (size < least || size > kMost) {
      throw reader.refused(field, fmt::format("and it is {} to {}", least, kMost));
    }
  };
  read("kv_lora_rank", shape.kv_rank, 1);
  read("qk_nope_head_dim", shape.content_dim, 0);
  read("qk_rope_head_dim", shape.rotary_dim, 2);
  read("v_head_dim", shape.value_dim, 1);
  if (reader.contains("q_lora_rank") && reader.is_null("q_lora_rank")) {
    shape.query_rank = 0;
  } else {
    read("q_lora_rank", shape.query_rank, 1);
  }
  if (shape.rotary_dim % 2 != 0) {
    throw reader.refused("qk_rope_head_dim", "which must be even: positions rotate pairs");
  }
  // What transformers writes beside them, and gives no meaning of their own.
  const auto same = [&](const char* field, std::int64_t size) {
    if (reader.integer(field, size) == size) return;
    throw reader.refused(field, fmt::format("and the other fields make it {}", size));
  };
  same("qk_head_dim", shape.query_dim());
  reader.ignore({"head_dim"});  // read by nobody: of the rotated part, of a query or of neither
  return shape;
}

std::unique_ptr<Layer> make_latent_attention(const ModelConfig& config, const LatentShape& shape,
                                             const BuildOptions& options, const TensorSplit& split,
                                             const Constant* rope_table, const std::string& at,
                                             int index, double out_stddev) {
  const std::int64_t C = config.hidden_size;
  const std::int64_t H = config.heads.num_heads;
  const double stddev = config.initializer_range;
  const auto params = [&](const char* name, std::int64_t out, std::int64_t in, bool bias) {
    return make_linear_params(options.dtype, {{at + name, out}}, in, stddev, bias);
  };
  // Of what all heads read, which all ranks have.
  const auto whole = [&](LinearParams of) {
    return Linear(split.all(std::move(of.weight)), split.all(std::move(of.bias)), options.device);
  };
  const auto norm = [&](const char* name, std::int64_t width) {
    return split.all(make_param(fmt::format("{}{}.weight", at, name), {options.dtype, {width}},
                                Init::one(), /*decay=*/false));
  };
  // Ranks share heads evenly, and a head's rows are together.
  const auto of_heads = [&](LinearParams of) { return split.mlp_in(std::move(of), 1); };
  const bool bias = config.attention_bias;
  std::unique_ptr<Linear> query_down;
  Param query_norm;
  if (shape.query_rank > 0) {
    query_down = std::make_unique<Linear>(whole(params("q_a_proj", shape.query_rank, C, bias)));
    query_norm = norm("q_a_layernorm", shape.query_rank);
  }
  Linear query = of_heads(shape.query_rank > 0
                              ? params("q_b_proj", H * shape.query_dim(), shape.query_rank, false)
                              : params("q_proj", H * shape.query_dim(), C, false));
  Param out_bias;
  Linear out = split.mlp_out(make_linear_params(options.dtype, {{at + "o_proj", C}},
                                                H * shape.value_dim, out_stddev, bias),
                             out_bias);
  LatentAttention::Projections projections = {
      .query_down = std::move(query_down),
      .query_norm = std::move(query_norm),
      .query = std::move(query),
      .latent = whole(params("kv_a_proj_with_mqa", shape.kv_rank + shape.rotary_dim, C, bias)),
      .latent_norm = norm("kv_a_layernorm", shape.kv_rank),
      .key_value = of_heads(
          params("kv_b_proj", H * (shape.content_dim + shape.value_dim), shape.kv_rank, false)),
      .out = std::move(out)};
  const LatentAttention::Options of_layer = {.heads = split.heads(),
                                             .shape = shape,
                                             .scale = config.score_scale(),
                                             .rope_table = rope_table,
                                             .index = index,
                                             .norm = kLatentEps};
  return split.branch(
      std::make_unique<LatentAttention>(of_layer, std::move(projections), split.attention_core()),
      std::move(out_bias));
}

}  // namespace atl::nn
