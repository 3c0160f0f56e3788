#include <cmath>
#include <string>
#include <string_view>

#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/nn/models/deepseek/latent_parts.h"

// Only what llama.cpp computes as config.json says it is written; the rest is refused by field.

namespace atl::ckpt {

namespace {

// The families that are written, for messages.
std::string gguf_families() {
  std::string names;
  for (const nn::Family& family : nn::families()) {
    if (family.gguf.architecture[0] == '\0') continue;
    names += (names.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return names;
}

class Writer {
 public:
  Writer(const nn::ModelConfig& config, const nn::GgufForm& form, const std::string& origin)
      : origin_(origin) {
    model_.shape = {&form, config.heads.head_dim, config.vocab_size};
    if (nn::has_latent(form)) model_.shape.latent = nn::deepseek_latent(config);
    model_.is_tied = config.tie_embeddings;
    model_.context_length = config.max_positions;
    model_.fields.emplace_back("general.architecture", std::string(form.architecture));
  }
  void add(const char* key, GgufField value) {
    model_.fields.emplace_back(fmt::format("{}.{}", model_.shape.form->architecture, key),
                               std::move(value));
  }
  void add_size(const char* key, std::int64_t value) {
    if (value <= 0 || value > INT32_MAX) {
      throw user_error("{}: {} would be {} in GGUF, which is not a size", origin_, key, value);
    }
    add(key, static_cast<std::uint32_t>(value));
  }
  GgufModel& model() { return model_; }

 private:
  const std::string& origin_;
  GgufModel model_;
};

// llama.cpp's YaRN has the paper's growth of scores and bounds that are whole indices. Of gpt-oss,
// whose bounds are none, it takes them for such, as it does of the files that its own converter
// writes: the family's settings say which they are.
void add_yarn(const nn::RopeScaling& scaling, const std::string& origin, Writer& writer) {
  const double growth = scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
  const bool keeps_bounds = std::string_view(writer.model().shape.form->architecture) == "gpt-oss";
  if ((!scaling.truncate && !keeps_bounds) || std::abs(scaling.attention_factor - growth) > 1e-6 ||
      scaling.beta_fast != 32 || scaling.beta_slow != 1) {
    throw user_error(
        "{}: this \"yarn\" scaling has an attention_factor, beta_fast, beta_slow or truncate that "
        "atoll does not write as GGUF; export as hf",
        origin);
  }
  writer.add("rope.scaling.type", std::string("yarn"));
  writer.add("rope.scaling.factor", static_cast<float>(scaling.factor));
  writer.add_size("rope.scaling.original_context_length", scaling.original_max_positions);
}

void add_rope(const nn::ModelConfig& config, const std::string& origin, Writer& writer) {
  using Kind = nn::RopeScaling::Kind;
  const nn::RopeScaling& scaling = config.rope_scaling;
  const std::int64_t head_dim = config.heads.head_dim;
  writer.add_size("rope.dimension_count", config.rotary_dim > 0 ? config.rotary_dim : head_dim);
  writer.add("rope.freq_base", static_cast<float>(config.rope_theta));
  if (nn::has_latent(*writer.model().shape.form)) return;  // its family writes the scaling
  if (scaling.kind == Kind::kLongrope) {
    throw user_error("{}: atoll does not write the scaling \"longrope\" as GGUF; export as hf",
                     origin);
  }
  if (scaling.kind == Kind::kYarn) return add_yarn(scaling, origin, writer);
  if (scaling.kind == Kind::kLinear) {
    writer.add("rope.scaling.type", std::string("linear"));
    writer.add("rope.scaling.factor", static_cast<float>(scaling.factor));
  } else if (scaling.kind == Kind::kLlama3) {
    const Llama3Rope rope = {scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor,
                             static_cast<double>(scaling.original_max_positions)};
    writer.model().rope_factors = rope_factors(rope, config.rope_theta, head_dim);
    // llama.cpp reads this for other kinds of scaling only; an import finds the scaling by it.
    writer.add_size("rope.scaling.original_context_length", scaling.original_max_positions);
  }
}

// llama.cpp has experts in every block, and divides a token's weights by their sum, unless the
// family says otherwise.
void add_experts(const nn::ModelConfig& config, const nn::Family& family, const std::string& origin,
                 Writer& writer) {
  const bool is_plain = config.experts.dense_layers.empty() && config.experts.normalize;
  if (!is_plain && !nn::has_latent(family.gguf)) {
    throw user_error("{}: {}; llama.cpp's {} does not compute that: export as hf", origin,
                     config.experts.normalize
                         ? "\"mlp_only_layers\" or \"decoder_sparse_step\" leaves blocks "
                           "without experts"
                         : "\"norm_topk_prob\" is false",
                     family.gguf.architecture);
  }
  writer.add_size("expert_count", config.experts.num_experts);
  writer.add_size("expert_used_count", config.experts.top_k);
  if (family.has_expert_width) {
    writer.add_size("expert_feed_forward_length", config.experts.intermediate_size);
  }
}

// Where llama.cpp attends to everything, it computes the same up to the window.
void limit_context(const nn::ModelConfig& config, GgufModel& model) {
  if (config.sliding_window == 0 || config.sliding_window >= model.context_length) return;
  model.window_cuts_context = true;
  model.context_length = config.sliding_window;
}

GgufField as_field(const nn::GgufSettings::mapped_type& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    return static_cast<std::uint32_t>(*number);
  }
  if (const auto* number = std::get_if<double>(&value)) return static_cast<float>(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return std::get<std::string>(value);
}

}  // namespace

GgufModel gguf_model(const nn::ModelConfig& config, const std::string& origin) {
  const nn::Family& family = nn::find_family(config.family, origin);
  if (family.gguf.architecture[0] == '\0') {
    throw user_error(
        "{}: atoll does not write the model family \"{}\" as GGUF, but {}; export as hf", origin,
        config.family, gguf_families());
  }
  Writer writer(config, family.gguf, origin);
  GgufModel& model = writer.model();
  if (!family.gguf.has_windows) limit_context(config, model);
  writer.add_size("block_count", config.num_layers);
  writer.add_size("context_length", model.context_length);
  writer.add_size("embedding_length", config.hidden_size);
  writer.add_size("feed_forward_length", config.intermediate_size);
  writer.add_size("attention.head_count", config.heads.num_heads);
  if (family.has_rope) {
    if (!nn::has_latent(family.gguf)) {
      writer.add_size("attention.head_count_kv", config.heads.num_kv_heads);
      writer.add_size("attention.key_length", config.heads.head_dim);
      writer.add_size("attention.value_length", config.heads.head_dim);
    }
  }
  writer.add(family.norm == "layer_norm" ? "attention.layer_norm_epsilon"
                                         : "attention.layer_norm_rms_epsilon",
             static_cast<float>(config.norm_eps));
  writer.add_size("vocab_size", config.vocab_size);
  if (family.has_rope) add_rope(config, origin, writer);
  if (family.has_experts) add_experts(config, family, origin, writer);
  nn::GgufSettings own;
  if (family.gguf.write != nullptr) family.gguf.write(config, origin, own);
  for (const auto& [key, value] : own) writer.add(key.c_str(), as_field(value));
  return std::move(model);
}

}  // namespace atl::ckpt
