#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/nesting.h"
#include "atoll/ckpt/gguf_config.h"
#include "atoll/ckpt/gguf_names.h"

// Only what llama.cpp computes as config.json says it is written; the rest is refused by field.

namespace atl::ckpt {

namespace {

using Json = nlohmann::json;

Json parse(const std::string& text, const std::string& origin) {
  constexpr int kMaxDepth = 64;
  if (nesting_depth(text) > kMaxDepth) {
    throw damaged_error("{}: nested more than {} levels deep", origin, kMaxDepth);
  }
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
  } catch (const Json::exception& error) {
    throw damaged_error("{} is not JSON: {}", origin, error.what());
  }
  throw damaged_error("{} is not a JSON object", origin);
}

// Fields of a config.json, absent and null being the same.
class Fields {
 public:
  Fields(Json json, std::string origin) : json_(std::move(json)), origin_(std::move(origin)) {}

  bool has(const char* field) const { return json_.contains(field) && !json_[field].is_null(); }
  template <typename T>
  T get(const char* field) const {
    try {
      return json_.at(field).get<T>();
    } catch (const Json::exception& error) {
      throw damaged_error("{}: \"{}\": {}", origin_, field, error.what());
    }
  }
  template <typename T>
  T get(const char* field, T fallback) const {
    return has(field) ? get<T>(field) : fallback;
  }
  Fields object(const char* field) const {
    if (has(field) && !json_[field].is_object()) {
      throw damaged_error("{}: \"{}\" is not an object", origin_, field);
    }
    return {has(field) ? json_[field] : Json::object(), origin_};
  }
  std::uint32_t size(const char* field) const {
    const auto value = get<std::int64_t>(field);
    if (value <= 0 || value > INT32_MAX) {
      throw damaged_error("{}: \"{}\" is {}, not a size", origin_, field, value);
    }
    return static_cast<std::uint32_t>(value);
  }
  std::uint32_t size(const char* field, std::uint32_t fallback) const {
    return has(field) ? size(field) : fallback;
  }
  void expect_text(const char* field, const std::string& only) const {
    const auto value = get<std::string>(field, only);
    if (value != only) {
      throw user_error("{}: \"{}\" is \"{}\", and llama.cpp computes only \"{}\"; export as hf",
                       origin_, field, value, only);
    }
  }
  const std::string& origin() const { return origin_; }

 private:
  Json json_;
  std::string origin_;
};

class Writer {
 public:
  explicit Writer(std::string architecture) {
    model_.shape.architecture = std::move(architecture);
    model_.fields.emplace_back("general.architecture", model_.shape.architecture);
  }
  void add(const char* key, GgufField value) {
    model_.fields.emplace_back(model_.shape.architecture + "." + key, std::move(value));
  }
  GgufModel& model() { return model_; }

 private:
  GgufModel model_;
};

void add_rope(const Fields& config, Writer& writer) {
  // transformers 5 keeps both in rope_parameters; before, they stood apart.
  const Fields parameters = config.object("rope_parameters");
  const Fields scaling = config.has("rope_parameters") ? parameters : config.object("rope_scaling");
  const double theta =
      parameters.get<double>("rope_theta", config.get<double>("rope_theta", 10000.0));
  const std::int64_t head_dim = writer.model().shape.head_dim;
  writer.add("rope.dimension_count", static_cast<std::uint32_t>(head_dim));
  writer.add("rope.freq_base", static_cast<float>(theta));
  const auto type =
      scaling.get<std::string>("rope_type", scaling.get<std::string>("type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    writer.add("rope.scaling.type", std::string("linear"));
    writer.add("rope.scaling.factor", static_cast<float>(scaling.get<double>("factor")));
  } else if (type == "llama3") {
    Llama3Rope rope;
    rope.factor = scaling.get<double>("factor");
    rope.low_freq_factor = scaling.get<double>("low_freq_factor");
    rope.high_freq_factor = scaling.get<double>("high_freq_factor");
    const std::uint32_t original = scaling.size("original_max_position_embeddings");
    rope.original_positions = original;
    writer.model().rope_factors = rope_factors(rope, theta, head_dim);
    // llama.cpp reads this for other kinds of scaling only; an import finds the scaling by it.
    writer.add("rope.scaling.original_context_length", original);
  } else {
    throw user_error("{}: rope_type \"{}\" is not one that atoll writes as GGUF; export as hf",
                     config.origin(), type);
  }
}

// llama.cpp's llama, qwen2 and qwen3 attend to everything. Up to the window that is the same.
void limit_context(const Fields& config, bool has_window, Writer& writer) {
  GgufModel& model = writer.model();
  model.context_length = config.size("max_position_embeddings", 2048);
  if (!has_window || !config.has("sliding_window")) return;
  const std::int64_t window = config.size("sliding_window");
  model.window_cuts_context = window < model.context_length;
  model.context_length = std::min(window, model.context_length);
}

GgufModel rotary_model(const Fields& config, const std::string& family) {
  Writer writer(family == "mistral" ? "llama" : family);
  config.expect_text("hidden_act", "silu");
  const bool has_window =
      family == "mistral" || (family != "llama" && config.get<bool>("use_sliding_window", false));
  limit_context(config, has_window, writer);
  GgufModel& model = writer.model();
  const std::uint32_t width = config.size("hidden_size");
  const std::uint32_t heads = config.size("num_attention_heads");
  const std::uint32_t head_dim = config.size("head_dim", width / heads);
  model.shape.head_dim = head_dim;
  model.shape.vocab_size = config.size("vocab_size");
  model.is_tied = config.get<bool>("tie_word_embeddings", false);
  writer.add("block_count", config.size("num_hidden_layers"));
  writer.add("context_length", static_cast<std::uint32_t>(model.context_length));
  writer.add("embedding_length", width);
  writer.add("feed_forward_length", config.size("intermediate_size"));
  writer.add("attention.head_count", heads);
  writer.add("attention.head_count_kv", config.size("num_key_value_heads", heads));
  writer.add("attention.key_length", head_dim);
  writer.add("attention.value_length", head_dim);
  writer.add("attention.layer_norm_rms_epsilon",
             static_cast<float>(config.get<double>("rms_norm_eps", 1e-6)));
  writer.add("vocab_size", static_cast<std::uint32_t>(model.shape.vocab_size));
  add_rope(config, writer);
  return std::move(model);
}

GgufModel gpt2_model(const Fields& config) {
  Writer writer("gpt2");
  config.expect_text("activation_function", "gelu_new");
  GgufModel& model = writer.model();
  const std::uint32_t width = config.size("n_embd");
  const std::uint32_t heads = config.size("n_head");
  model.shape.head_dim = width / heads;
  model.shape.vocab_size = config.size("vocab_size");
  model.is_tied = config.get<bool>("tie_word_embeddings", true);
  model.context_length = config.size("n_positions", 1024);
  writer.add("block_count", config.size("n_layer"));
  writer.add("context_length", static_cast<std::uint32_t>(model.context_length));
  writer.add("embedding_length", width);
  writer.add("feed_forward_length", config.size("n_inner", 4 * width));
  writer.add("attention.head_count", heads);
  writer.add("attention.layer_norm_epsilon",
             static_cast<float>(config.get<double>("layer_norm_epsilon", 1e-5)));
  writer.add("vocab_size", static_cast<std::uint32_t>(model.shape.vocab_size));
  return std::move(model);
}

}  // namespace

GgufModel gguf_model(const std::string& config_json, const std::string& origin) {
  const Fields config(parse(config_json, origin), origin);
  const auto family = config.get<std::string>("model_type");
  if (family == "gpt2") return gpt2_model(config);
  if (family == "mistral" || is_gguf_architecture(family)) return rotary_model(config, family);
  throw user_error("{}: model family \"{}\" is not one that atoll writes as GGUF ({}, mistral)",
                   origin, family, gguf_architectures());
}

}  // namespace atl::ckpt
