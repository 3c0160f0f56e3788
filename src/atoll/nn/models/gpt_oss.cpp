// gpt-oss (OpenAI 2025): experts with biases and a bounded SwiGLU in every block, a learned sink
// for each attention head, and a window in every other layer.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/expert_parts.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

constexpr std::int64_t kWindow = 128;
constexpr double kSwigluLimit = 7;

// Files stack the experts: these names are of their parts, see ckpt/hf/stacked_experts.h.
constexpr ExpertNames kNames = {.router = "mlp.router",
                                .experts = "mlp.experts",
                                .gate = "gate_up_proj.gate",
                                .up = "gate_up_proj.up",
                                .down = "down_proj.down",
                                .has_bias = true,
                                .swiglu_limit = kSwigluLimit};

// Sinks, which have no ".weight" in Hugging Face's files, have whole names.
constexpr GgufTensorName kGgufInside[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", true},
    {"attn_k", "self_attn.k_proj", true},
    {"attn_v", "self_attn.v_proj", true},
    {"attn_output", "self_attn.o_proj", true},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router", true},
    {"ffn_gate_exps", "mlp.experts.*.gate_up_proj.gate", true},
    {"ffn_up_exps", "mlp.experts.*.gate_up_proj.up", true},
    {"ffn_down_exps", "mlp.experts.*.down_proj.down", true},
};

bool has_window(std::int64_t layer) {
  return layer % 2 == 0;
}

void set_windows(ModelConfig& config) {
  config.windowed_layers.clear();
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    config.windowed_layers.push_back(has_window(i));
  }
}

// What transformers takes where config.json has no scaling.
RopeScaling default_scaling() {
  constexpr double kFactor = 32;
  return {.kind = RopeScaling::Kind::kYarn,
          .factor = kFactor,
          .original_max_positions = 4096,
          .attention_factor = 0.1 * std::log(kFactor) + 1,
          .truncate = false};
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "gpt_oss",
                                    {.max_positions = 131072,
                                     .num_kv_heads = 8,
                                     .head_dim = 64,
                                     .norm_eps = 1e-5,
                                     .rope_theta = 150000});
  if (reader.is_null("rope_scaling") && reader.is_null("rope_parameters")) {
    config.rope_scaling = default_scaling();
  }
  config.attention_bias = reader.boolean("attention_bias", true);
  config.experts = read_experts(reader, {.num_experts = 128, .top_k = 4});
  config.experts.intermediate_size = config.intermediate_size;
  config.experts.normalize = true;
  if (reader.integer("experts_per_token", config.experts.top_k) != config.experts.top_k) {
    throw reader.refused("experts_per_token", "and \"num_experts_per_tok\" is another number");
  }
  reader.only("swiglu_alpha", "1.702");
  reader.only("swiglu_limit", "7.0");
  reader.ignore({"initial_context_length"});  // original_max_position_embeddings says it too
  const bool has_windows = !reader.contains("sliding_window") || !reader.is_null("sliding_window");
  config.sliding_window = has_windows ? reader.integer("sliding_window", kWindow) : 0;
  if (has_windows && config.sliding_window < 1) {
    throw reader.refused("sliding_window", "which hides every token");
  }
  set_windows(config);
  read_layer_types(reader, config);
  // Not as a new model, which has windows: see to_json.
  if (config.sliding_window == 0) {
    config.windowed_layers.assign(static_cast<std::size_t>(config.num_layers), false);
  }
  reader.finish();
  validate_experts(config, origin);
  return config;
}

std::string to_json(const ModelConfig& config) {
  const bool is_new = config.sliding_window == 0 && config.windowed_layers.empty();
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const bool windowed = is_new ? has_window(i) : config.window(i) > 0;
    types.emplace_back(windowed ? "sliding_attention" : "full_attention");
  }
  nlohmann::json own = {
      {"attention_bias", config.attention_bias || is_new},
      {"layer_types", types},
      {"num_experts_per_tok", config.experts.top_k},
      {"num_local_experts", config.experts.num_experts},
      {"output_router_logits", false},
      {"pad_token_id", nullptr},
      {"router_aux_loss_coef", config.experts.balance_loss},
      {"sliding_window", is_new ? std::min(config.max_positions, kWindow)
                                : std::max<std::int64_t>(config.sliding_window, 1)},
      {"swiglu_limit", kSwigluLimit}};
  // Absent, transformers takes the published model's scaling.
  if (config.rope_scaling.kind == RopeScaling::Kind::kNone) {
    own["rope_scaling"] = {{"rope_type", "default"}};
  }
  return decoder_json(config, "GptOssForCausalLM", own.dump());
}

// llama.cpp gives the first of two layers the window, and has every bias. Whether the bounds of
// YaRN are whole indices is for other programs to pass over: see docs/models.md.
void write_gguf(const ModelConfig& config, const std::string& origin, GgufSettings& to) {
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    if ((config.window(i) > 0) == has_window(i)) continue;
    throw user_error(
        "{}: \"layer_types\" or \"sliding_window\" gives layer {} {} window, and llama.cpp's "
        "gpt-oss has windows in the first of each two layers: export as hf",
        origin, i, config.window(i) > 0 ? "a" : "no");
  }
  if (!config.attention_bias) {
    throw user_error(
        "{}: \"attention_bias\" is false, and llama.cpp's gpt-oss needs the biases: export as hf",
        origin);
  }
  to["attention.sliding_window"] = config.sliding_window;
  to["expert_feed_forward_length"] = config.experts.intermediate_size;
  if (config.rope_scaling.kind == RopeScaling::Kind::kYarn) {
    to["rope.scaling.truncate"] = config.rope_scaling.truncate;
  }
}

void read_gguf(GgufSettings& from, ModelConfig& config) {
  config.sliding_window =
      static_cast<std::int64_t>(take_gguf_number(from, "attention.sliding_window", kWindow));
  set_windows(config);
  config.intermediate_size = config.experts.intermediate_size;
  config.rope_scaling.truncate = take_gguf_number(from, "rope.scaling.truncate", 0) != 0;
}

std::unique_ptr<Model> build(const ModelConfig& config, const BuildOptions& options) {
  if (options.device != DeviceKind::kCpu) {
    throw user_error(
        "models of the family gpt_oss are computed on a CPU alone so far: their sinks, biases of "
        "experts and bounded SwiGLU have no kernels for GPUs; use --device=cpu");
  }
  ModelConfig gpt_oss = config;
  gpt_oss.experts.normalize = true;
  gpt_oss.mlp_bias = false;
  return build_decoder(gpt_oss, options, {.attention_sinks = true, .experts = &kNames});
}

}  // namespace

Family gpt_oss_family() {
  static constexpr const char* kAliases[] = {"gptoss"};
  return {.model_type = "gpt_oss",
          .parse = parse,
          .to_json = to_json,
          .build = build,
          .has_experts = true,
          .has_window_setting = true,
          .aliases = kAliases,
          .gguf = {.architecture = "gpt-oss",
                   .outside = decoder_gguf_outside(),
                   .inside = kGgufInside,
                   .write = write_gguf,
                   .read = read_gguf,
                   .has_windows = true}};
}

}  // namespace atl::nn
