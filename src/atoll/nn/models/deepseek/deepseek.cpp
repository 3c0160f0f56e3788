// DeepSeek V2 and V3 (DeepSeek-AI 2024), and what was built in their shape (Moonlight, Kimi K2,
// GigaChat): attention by a latent vector, experts that all tokens go through beside those that a
// token chooses, and choices within groups of experts.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/deepseek/latent_parts.h"
#include "atoll/nn/models/expert_parts.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/rope.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr const char* kV2 = "deepseek_v2";
constexpr const char* kV3 = "deepseek_v3";

constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", false, GgufOrder::kWholeName},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
};

bool is_v3(const ModelConfig& config) {
  return config.family == kV3;
}

// What the fields of config.json say that ModelConfig has no place for.
struct DeepseekShape {
  LatentShape latent;
  ops::RouterForm router;
  std::int64_t num_shared = 0;
};

// What transformers takes where a field is absent: the first models of the families.
struct Defaults {
  LatentShape latent = {
      .kv_rank = 512, .query_rank = 1536, .content_dim = 128, .rotary_dim = 64, .value_dim = 128};
  std::int64_t max_positions = 2048;
  std::int64_t num_experts = 64, num_shared = 2, expert_width = 1407, dense_layers = 0;
  std::int64_t num_groups = 1, top_groups = 1;
  double scale = 1;
};
constexpr Defaults kV2Defaults = {};
constexpr Defaults kV3Defaults = {.max_positions = 4096,
                                  .num_experts = 256,
                                  .num_shared = 1,
                                  .expert_width = 2048,
                                  .dense_layers = 3,
                                  .num_groups = 8,
                                  .top_groups = 4,
                                  .scale = 2.5};

const Defaults& defaults_of(const ModelConfig& config) {
  return is_v3(config) ? kV3Defaults : kV2Defaults;
}

// How much scores grow with the length of contexts is the square of this.
double score_growth(double mscale_all_dim, double factor) {
  return factor > 1 ? 0.1 * mscale_all_dim * std::log(factor) + 1 : 1;
}

double plain_scale(const LatentShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.query_dim()));
}

// "mscale_all_dim" of whatever scaling there is.
double read_score_growth(ConfigReader& reader) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const auto rope = reader.object(field);
    if (!rope || rope->text("rope_type", rope->text("type", "default")) == "default") continue;
    return score_growth(rope->number("mscale_all_dim", 0), rope->number("factor", 1));
  }
  return 1;
}

// `config` has the experts and how many a token goes through.
ops::RouterForm read_router(ConfigReader& reader, const ModelConfig& config) {
  const Defaults& defaults = defaults_of(config);
  const ExpertShape& experts = config.experts;
  ops::RouterForm form = {.normalize = experts.normalize,
                          .sigmoid = is_v3(config),
                          .scale = reader.number("routed_scaling_factor", defaults.scale),
                          .num_groups = reader.integer("n_group", defaults.num_groups),
                          .top_groups = reader.integer("topk_group", defaults.top_groups),
                          .best_of_group = is_v3(config) ? 2 : 1};
  if (is_v3(config)) {
    reader.only("topk_method", R"("noaux_tc")");
    reader.only("scoring_func", R"("sigmoid")");
  } else {
    const std::string method = reader.text("topk_method", "greedy");
    reader.only("scoring_func", R"("softmax")");
    if (method != "greedy" && method != "group_limited_greedy") {
      throw reader.refused("topk_method",
                           "and atoll computes \"greedy\" and \"group_limited_greedy\" in this "
                           "family");
    }
    if (method == "greedy") form.num_groups = form.top_groups = 1;
  }
  if (form.num_groups < 1 || experts.num_experts % form.num_groups != 0) {
    throw reader.refused("n_group", fmt::format("and {} experts are no such groups of one size",
                                                experts.num_experts));
  }
  const std::int64_t size = experts.num_experts / form.num_groups;
  if (form.top_groups < 1 || form.top_groups > form.num_groups ||
      experts.top_k > form.top_groups * size) {
    throw reader.refused(
        "topk_group", fmt::format("and a token needs {} experts, of {} groups of {}", experts.top_k,
                                  form.num_groups, size));
  }
  return form;
}

DeepseekShape read_shape(ConfigReader& reader, const ModelConfig& config) {
  const Defaults& defaults = defaults_of(config);
  DeepseekShape shape = {.latent = read_latent(reader, defaults.latent),
                         .router = read_router(reader, config)};
  if (is_v3(config)) {
    shape.latent.rotates_neighbours = reader.boolean("rope_interleave", true);
  } else {
    reader.only("rope_interleave", "true");
  }
  const bool is_none = reader.contains("n_shared_experts") && reader.is_null("n_shared_experts");
  shape.num_shared = is_none ? 0 : reader.integer("n_shared_experts", defaults.num_shared);
  constexpr std::int64_t kMost = 1 << 16;
  if (shape.num_shared < 1 || shape.num_shared > kMost) {
    throw reader.refused("n_shared_experts", "and every block with experts needs one or more");
  }
  return shape;
}

// What a new model has of a head's width, in the proportions of the published ones.
DeepseekShape new_shape(const ModelConfig& config) {
  const Defaults& defaults = defaults_of(config);
  DeepseekShape shape;
  LatentShape& latent = shape.latent;
  latent.rotary_dim = config.rotary_dim;
  latent.content_dim = config.heads.head_dim - latent.rotary_dim;
  latent.value_dim = std::max<std::int64_t>(latent.content_dim, 1);
  latent.kv_rank = 4 * latent.value_dim;
  latent.query_rank = is_v3(config) ? 12 * latent.value_dim : 0;
  shape.router = {.normalize = config.experts.normalize,
                  .sigmoid = is_v3(config),
                  .scale = defaults.scale,
                  .best_of_group = is_v3(config) ? 2 : 1};
  shape.num_shared = defaults.num_shared;
  return shape;
}

// config.json alone says the rest; a new model has none yet.
DeepseekShape shape_of(const ModelConfig& config) {
  if (config.source_json.empty()) return new_shape(config);
  ConfigReader reader(config.source_json, "config.json");
  return read_shape(reader, config);
}

void read_experts(ConfigReader& reader, ModelConfig& config) {
  const Defaults& defaults = defaults_of(config);
  ExpertShape& experts = config.experts;
  experts.num_experts = reader.integer("n_routed_experts", defaults.num_experts);
  // Names that transformers 5 writes beside that one.
  for (const char* field : {"num_experts", "num_local_experts"}) {
    if (reader.integer(field, experts.num_experts) != experts.num_experts) {
      throw reader.refused(field, "and \"n_routed_experts\" is another number");
    }
  }
  constexpr std::int64_t kMost = 1 << 16;
  if (experts.num_experts < 1 || experts.num_experts > kMost) {
    throw reader.refused("n_routed_experts", fmt::format("and there are 1 to {} experts", kMost));
  }
  experts.top_k = is_v3(config) ? reader.integer("num_experts_per_tok", 8)
                                : reader.integer("num_experts_per_tok");
  if (experts.top_k < 1 || experts.top_k > experts.num_experts) {
    throw reader.refused("num_experts_per_tok",
                         fmt::format("and there are {} experts", experts.num_experts));
  }
  experts.intermediate_size = reader.integer("moe_intermediate_size", defaults.expert_width);
  experts.normalize = is_v3(config) && reader.boolean("norm_topk_prob", true);
  // transformers does not look at it in V2, where published files have false.
  if (!is_v3(config)) reader.only("norm_topk_prob", "false");
  experts.balance_loss = reader.number("router_aux_loss_coef", 0);
  if (!(experts.balance_loss >= 0)) {
    throw reader.refused("router_aux_loss_coef", "which would reward uneven loads");
  }
  // Of the run that trained the model: moe.balance_loss says what one here does. And how many
  // processes shared its experts.
  reader.ignore({"aux_loss_alpha", "seq_aux", "ep_size", "output_router_logits"});
}

void read_dense_layers(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t first =
      reader.integer("first_k_dense_replace", defaults_of(config).dense_layers);
  reader.only("moe_layer_freq", "1");
  if (first >= config.num_layers) {
    throw reader.refused(
        "first_k_dense_replace",
        fmt::format("so that none of the {} blocks has experts", config.num_layers));
  }
  if (first == 0) return;
  config.experts.dense_layers.assign(static_cast<std::size_t>(config.num_layers), false);
  std::fill_n(config.experts.dense_layers.begin(), first, true);
}

void read_rotation(ConfigReader& reader, const LatentShape& shape, ModelConfig& config) {
  read_rope(reader, config);
  if (config.rope_scaling.kind == RopeScaling::Kind::kLongrope) {
    throw reader.refused("rope_scaling", "and atoll computes DeepSeek's models without longrope");
  }
  const double growth = read_score_growth(reader);
  config.attention_scale = plain_scale(shape) * growth * growth;
}

ModelConfig parse(std::string_view json, const std::string& origin, const char* family) {
  ConfigReader reader(json, origin);
  ModelConfig config;
  config.family = family;
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.num_layers = reader.integer("num_hidden_layers");
  config.heads.num_heads = reader.integer("num_attention_heads");
  config.intermediate_size = reader.integer("intermediate_size");
  config.max_positions =
      reader.integer("max_position_embeddings", defaults_of(config).max_positions);
  config.norm_eps = reader.number("rms_norm_eps", 1e-6);
  config.initializer_range = reader.number("initializer_range", 0.02);
  config.tie_embeddings = reader.boolean("tie_word_embeddings", false);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.activation = reader.text("hidden_act", "silu");
  reader.only("hidden_act", "\"silu\"");
  reader.only("mlp_bias", "false");
  if (reader.integer("num_key_value_heads", config.heads.num_heads) != config.heads.num_heads) {
    throw reader.refused("num_key_value_heads",
                         "and every head has a key and a value of its own: give "
                         "\"num_attention_heads\" or leave it out");
  }
  check_quantised(reader);
  read_experts(reader, config);
  const DeepseekShape shape = read_shape(reader, config);
  set_latent_heads(shape.latent, config);
  validate(config, origin);
  read_token_ids(reader, config);
  read_rotation(reader, shape.latent, config);
  read_dense_layers(reader, config);
  // Blocks behind the last that predict further tokens, which neither transformers nor atoll runs.
  reader.ignore({"num_nextn_predict_layers", "num_mtp_layers"});
  reader.finish();
  validate(config, origin);  // rope_theta, too
  validate_experts(config, origin);
  return config;
}

ModelConfig parse_v2(std::string_view json, const std::string& origin) {
  return parse(json, origin, kV2);
}
ModelConfig parse_v3(std::string_view json, const std::string& origin) {
  return parse(json, origin, kV3);
}

// A model that a recipe describes has sizes for heads alone: a third of each rotates, and the first
// block has a plain MLP where there are more.
ModelConfig completed(ModelConfig config) {
  if (config.rotary_dim > 0) return config;
  config.rotary_dim = std::max<std::int64_t>(2, config.heads.head_dim / 6 * 2);
  const LatentShape latent = new_shape(config).latent;
  set_latent_heads(latent, config);
  config.attention_scale = plain_scale(latent);
  config.experts.normalize = config.experts.normalize && is_v3(config);
  if (config.num_layers > 1) {
    config.experts.dense_layers.assign(static_cast<std::size_t>(config.num_layers), false);
    config.experts.dense_layers.front() = true;
  }
  return config;
}

std::int64_t num_dense(const ModelConfig& config) {
  const std::vector<bool>& dense = config.experts.dense_layers;
  return std::count(dense.begin(), dense.end(), true);
}

double mscale_all_dim(const ModelConfig& config, const LatentShape& shape) {
  if (config.rope_scaling.factor <= 1) return 0;
  const double growth = std::sqrt(config.attention_scale / plain_scale(shape));
  const double mscale = (growth - 1) / (0.1 * std::log(config.rope_scaling.factor));
  constexpr double kDigits = 1e9;  // 0.707 rather than 0.7070000000000001
  return std::round(mscale * kDigits) / kDigits;
}

nlohmann::json shape_json(const ModelConfig& config, const DeepseekShape& shape) {
  const LatentShape& latent = shape.latent;
  const ops::RouterForm& router = shape.router;
  nlohmann::json fields = {
      {"kv_lora_rank", latent.kv_rank},
      {"n_group", router.num_groups},
      {"n_shared_experts", shape.num_shared},
      {"q_lora_rank", latent.query_rank > 0 ? nlohmann::json(latent.query_rank) : nlohmann::json()},
      {"qk_nope_head_dim", latent.content_dim},
      {"qk_rope_head_dim", latent.rotary_dim},
      {"routed_scaling_factor", router.scale},
      {"scoring_func", router.sigmoid ? "sigmoid" : "softmax"},
      {"topk_group", router.top_groups},
      {"v_head_dim", latent.value_dim}};
  if (is_v3(config)) {
    fields["topk_method"] = "noaux_tc";
    fields["rope_interleave"] = latent.rotates_neighbours;
  } else {
    fields["topk_method"] = router.num_groups > 1 ? "group_limited_greedy" : "greedy";
  }
  return fields;
}

std::string to_json(const ModelConfig& given) {
  const ModelConfig config = completed(given);
  const DeepseekShape shape = shape_of(config);
  const ExpertShape& experts = config.experts;
  nlohmann::json own = shape_json(config, shape);
  own.update({{"attention_bias", config.attention_bias},
              {"first_k_dense_replace", num_dense(config)},
              {"moe_intermediate_size", experts.intermediate_size},
              {"moe_layer_freq", 1},
              {"n_routed_experts", experts.num_experts},
              {"norm_topk_prob", experts.normalize},
              {"num_experts_per_tok", experts.top_k},
              {"output_router_logits", false}});
  if (experts.balance_loss > 0) own["router_aux_loss_coef"] = experts.balance_loss;
  auto json = nlohmann::json::parse(decoder_json(
      config, is_v3(config) ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM", own.dump()));
  json.erase("head_dim");
  if (json["rope_scaling"].is_object()) {
    json["rope_scaling"]["mscale_all_dim"] = mscale_all_dim(config, shape.latent);
  }
  return json.dump(2) + "\n";
}

std::unique_ptr<Model> build(const ModelConfig& given, const BuildOptions& options) {
  if (options.device != DeviceKind::kCpu) {
    throw user_error(
        "models of the family {} are computed on a CPU alone so far: their router has no kernels "
        "for GPUs; use --device=cpu",
        given.family);
  }
  const ModelConfig config = completed(given);
  const DeepseekShape shape = shape_of(config);
  const ExpertNames names = {
      .router_form = shape.router,
      .correction = is_v3(config) ? "mlp.gate.e_score_correction_bias" : nullptr,
      .shared = "mlp.shared_experts",
      .num_shared = shape.num_shared};
  return build_decoder(config, options, {.experts = &names, .latent = &shape.latent});
}

// llama.cpp's numbers of what makes scores of logits.
constexpr std::int64_t kSoftmax = 1, kSigmoid = 2;

std::int64_t take_size(GgufSettings& from, const std::string& key, std::int64_t fallback) {
  constexpr double kMost = 1 << 30;  // a file may say anything
  const double number = take_gguf_number(from, key, static_cast<double>(fallback));
  return static_cast<std::int64_t>(std::clamp(number, 0.0, kMost));
}

void read_gguf(GgufSettings& from, ModelConfig& config) {
  // Without a number the file is of the time when there was only V2.
  const std::int64_t gating = take_size(from, "expert_gating_func", kSoftmax);
  config.family = gating == kSigmoid ? kV3 : kV2;
  DeepseekShape shape;
  LatentShape& latent = shape.latent;
  latent.kv_rank = take_size(from, "attention.kv_lora_rank", 0);
  latent.query_rank = take_size(from, "attention.q_lora_rank", 0);
  latent.rotary_dim = config.rotary_dim;
  // Files whose keys and values are in the latent form have the widths of heads under other names.
  const std::int64_t key = take_size(from, "attention.key_length", 0);
  const std::int64_t value = take_size(from, "attention.value_length", 0);
  latent.content_dim = std::max<std::int64_t>(
      0, take_size(from, "attention.key_length_mla", key) - latent.rotary_dim);
  latent.value_dim = take_size(from, "attention.value_length_mla", value);
  shape.num_shared = take_size(from, "expert_shared_count", 0);
  ExpertShape& experts = config.experts;
  experts.normalize = take_gguf_number(from, "expert_weights_norm", 0) != 0;
  shape.router = {
      .sigmoid = gating == kSigmoid,
      .scale = take_gguf_number(from, "expert_weights_scale", 1),
      .num_groups = std::max<std::int64_t>(1, take_size(from, "expert_group_count", 1)),
      .top_groups = std::max<std::int64_t>(1, take_size(from, "expert_group_used_count", 1))};
  const std::int64_t dense = take_size(from, "leading_dense_block_count", 0);
  if (dense > 0 && dense <= config.num_layers) {
    experts.dense_layers.assign(static_cast<std::size_t>(config.num_layers), false);
    std::fill_n(experts.dense_layers.begin(), dense, true);
  }
  double growth = 1;
  const double log_multiplier = take_gguf_number(from, "rope.scaling.yarn_log_multiplier", 0);
  if (config.rope_scaling.kind == RopeScaling::Kind::kYarn) {
    config.rope_scaling.attention_factor = 1;
    growth = score_growth(log_multiplier / 0.1, config.rope_scaling.factor);
  }
  set_latent_heads(latent, config);
  config.attention_scale = plain_scale(latent) * growth * growth;
  config.source_json = shape_json(config, shape).dump();  // see shape_of: to_json writes it anew
}

void write_gguf(const ModelConfig& config, const std::string& origin, GgufSettings& to) {
  const auto refuse = [&](const std::string& what) {
    throw user_error("{}: {}; llama.cpp's deepseek2 does not compute that: export as hf", origin,
                     what);
  };
  const DeepseekShape shape = shape_of(config);
  const LatentShape& latent = shape.latent;
  const RopeScaling& scaling = config.rope_scaling;
  if (config.attention_bias) refuse("\"attention_bias\" is true");
  if (!latent.rotates_neighbours) refuse("\"rope_interleave\" is false");
  if (!is_v3(config) && shape.router.has_groups()) {
    refuse("\"topk_method\" is \"group_limited_greedy\", by the best expert of each group");
  }
  const bool is_yarn = scaling.kind == RopeScaling::Kind::kYarn;
  if (is_yarn && (!scaling.truncate || std::abs(scaling.attention_factor - 1) > 1e-6 ||
                  scaling.beta_fast != 32 || scaling.beta_slow != 1)) {
    refuse(
        "\"rope_scaling\" has an \"mscale\" other than its \"mscale_all_dim\", or other bounds of "
        "frequencies than 32 and 1");
  }
  if (!is_yarn && scaling.kind != RopeScaling::Kind::kNone) {
    refuse("\"rope_scaling\" is of a kind other than yarn");
  }
  to["attention.kv_lora_rank"] = latent.kv_rank;
  if (latent.query_rank > 0) to["attention.q_lora_rank"] = latent.query_rank;
  // One key and one value for all heads, the latent vector, and what is made of it for each.
  to["attention.head_count_kv"] = std::int64_t{1};
  to["attention.key_length"] = latent.kv_rank + latent.rotary_dim;
  to["attention.value_length"] = latent.kv_rank;
  to["attention.key_length_mla"] = latent.query_dim();
  to["attention.value_length_mla"] = latent.value_dim;
  to["expert_gating_func"] = is_v3(config) ? kSigmoid : kSoftmax;
  to["expert_shared_count"] = shape.num_shared;
  to["expert_weights_scale"] = shape.router.scale;
  to["expert_weights_norm"] = config.experts.normalize;
  to["leading_dense_block_count"] = num_dense(config);
  if (shape.router.num_groups > 1) {
    to["expert_group_count"] = shape.router.num_groups;
    to["expert_group_used_count"] = shape.router.top_groups;
  }
  if (!is_yarn) return;
  to["rope.scaling.type"] = std::string("yarn");
  to["rope.scaling.factor"] = scaling.factor;
  to["rope.scaling.original_context_length"] = scaling.original_max_positions;
  to["rope.scaling.yarn_log_multiplier"] = 0.1 * mscale_all_dim(config, latent);
}

Family family(const char* model_type,
              ModelConfig (*parse_one)(std::string_view, const std::string&),
              std::span<const char* const> aliases) {
  return {.model_type = model_type,
          .parse = parse_one,
          .to_json = to_json,
          .build = build,
          .has_partial_rotation = true,
          .has_experts = true,
          .has_expert_width = true,
          .aliases = aliases,
          .sizes = {.num_kv_heads = "num_attention_heads", .head_dim = "qk_nope_head_dim"},
          .gguf = {.architecture = "deepseek2",
                   .outside = decoder_gguf_outside(),
                   .inside = kGgufInside,
                   .write = write_gguf,
                   .read = read_gguf}};
}

}  // namespace

Family deepseek_v2_family() {
  static constexpr const char* kAliases[] = {"deepseek2", "deepseekv2"};
  return family(kV2, parse_v2, kAliases);
}

Family deepseek_v3_family() {
  static constexpr const char* kAliases[] = {"deepseek3", "deepseekv3", "deepseek_r1"};
  return family(kV3, parse_v3, kAliases);
}

LatentShape deepseek_latent(const ModelConfig& config) {
  return shape_of(config).latent;
}

}  // namespace atl::nn
