#include <algorithm>

#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/names.h"

// Only what llama.cpp computes as config.json says it is written; the rest is refused by field.

namespace atl::ckpt {

namespace {

class Writer {
 public:
  Writer(const nn::ModelConfig& config, std::string architecture, const std::string& origin)
      : origin_(origin) {
    model_.shape = {std::move(architecture), config.heads.head_dim, config.vocab_size};
    model_.is_tied = config.tie_embeddings;
    model_.context_length = config.max_positions;
    model_.fields.emplace_back("general.architecture", model_.shape.architecture);
  }
  void add(const char* key, GgufField value) {
    model_.fields.emplace_back(model_.shape.architecture + "." + key, std::move(value));
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

void add_rope(const nn::ModelConfig& config, Writer& writer) {
  using Kind = nn::RopeScaling::Kind;
  const nn::RopeScaling& scaling = config.rope_scaling;
  const std::int64_t head_dim = config.heads.head_dim;
  writer.add_size("rope.dimension_count", head_dim);
  writer.add("rope.freq_base", static_cast<float>(config.rope_theta));
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

// llama.cpp's llama, qwen2 and qwen3 attend to everything. Up to the window that is the same.
void limit_context(const nn::ModelConfig& config, GgufModel& model) {
  if (config.sliding_window == 0 || config.sliding_window >= model.context_length) return;
  model.window_cuts_context = true;
  model.context_length = config.sliding_window;
}

GgufModel rotary_model(const nn::ModelConfig& config, const std::string& origin) {
  Writer writer(config, config.family == "mistral" ? "llama" : config.family, origin);
  GgufModel& model = writer.model();
  limit_context(config, model);
  writer.add_size("block_count", config.num_layers);
  writer.add_size("context_length", model.context_length);
  writer.add_size("embedding_length", config.hidden_size);
  writer.add_size("feed_forward_length", config.intermediate_size);
  writer.add_size("attention.head_count", config.heads.num_heads);
  writer.add_size("attention.head_count_kv", config.heads.num_kv_heads);
  writer.add_size("attention.key_length", config.heads.head_dim);
  writer.add_size("attention.value_length", config.heads.head_dim);
  writer.add("attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_eps));
  writer.add_size("vocab_size", config.vocab_size);
  add_rope(config, writer);
  return std::move(model);
}

GgufModel gpt2_model(const nn::ModelConfig& config, const std::string& origin) {
  if (config.activation != "gelu_new") {
    throw user_error(
        "{}: \"activation_function\" is \"{}\", and llama.cpp computes only \"gelu_new\"; export "
        "as hf",
        origin, config.activation);
  }
  Writer writer(config, "gpt2", origin);
  writer.add_size("block_count", config.num_layers);
  writer.add_size("context_length", config.max_positions);
  writer.add_size("embedding_length", config.hidden_size);
  writer.add_size("feed_forward_length", config.intermediate_size);
  writer.add_size("attention.head_count", config.heads.num_heads);
  writer.add("attention.layer_norm_epsilon", static_cast<float>(config.norm_eps));
  writer.add_size("vocab_size", config.vocab_size);
  return std::move(writer.model());
}

}  // namespace

GgufModel gguf_model(const nn::ModelConfig& config, const std::string& origin) {
  if (config.family == "gpt2") return gpt2_model(config, origin);
  if (config.family == "mistral" || is_gguf_architecture(config.family)) {
    return rotary_model(config, origin);
  }
  throw user_error("{}: model family \"{}\" is not one that atoll writes as GGUF ({}, mistral)",
                   origin, config.family, gguf_architectures());
}

}  // namespace atl::ckpt
