#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/base/log.h"
#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/nn/models/bookkeeping.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::ordered_json;

// Keys under "<architecture>." that are understood for every family, or say nothing about what is
// computed. Others are its family's, or are refused by name: they could change results.
constexpr const char* kKnownKeys[] = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "vocab_size",
};

// Keys that say something of files, of training or of embedding texts.
constexpr const char* kPassedOver[] = {"pooling_type", "tensor_data_layout",
                                       "classifier.output_labels"};

// A setting that says that something is not there.
bool is_off(const nn::GgufSettings::mapped_type& value) {
  const auto* number = std::get_if<std::int64_t>(&value);
  const auto* text = std::get_if<std::string>(&value);
  return (number != nullptr && *number == 0) || (text != nullptr && text->empty());
}

const nn::Family& family_of(const GgufFile& file) {
  const std::string architecture = file.text("general.architecture");
  const bool has_experts = file.integer(architecture + ".expert_count", 0) != 0;
  const nn::Family* family = find_gguf_family(architecture, has_experts);
  if (family == nullptr && find_gguf_family(architecture, !has_experts) != nullptr) {
    throw user_error(
        "{}: \"{}.expert_count\" is {}, and atoll reads such files {} a mixture of "
        "experts alone",
        file.path().string(), architecture, file.integer(architecture + ".expert_count", 0),
        has_experts ? "without" : "with");
  }
  if (family == nullptr) {
    throw user_error("{}: general.architecture is \"{}\", and atoll reads {}", file.path().string(),
                     architecture, gguf_architectures());
  }
  return *family;
}

// Settings of a file, their keys without the architecture before them.
class Settings {
 public:
  explicit Settings(const GgufFile& file) : file_(file), family_(family_of(file)) {
    const std::string prefix = key("");
    for (const auto& [whole, value] : file.metadata()) {
      if (!whole.starts_with(prefix)) continue;
      const std::string rest = whole.substr(prefix.size());
      if (!is_known(rest)) own_.emplace(rest, scalar(rest, value));
    }
  }

  std::string key(const std::string& rest) const {
    return fmt::format("{}.{}", family_.gguf.architecture, rest);
  }
  [[noreturn]] void refuse(const std::string& rest, std::string_view what) const {
    throw user_error("{}: \"{}\" is {}", file_.path().string(), key(rest), what);
  }
  const nn::Family& family() const { return family_; }
  // The settings that no family but this one may have.
  const nn::GgufSettings& own() const { return own_; }

  // A size that products and allocations may rest on.
  std::int64_t size(const std::string& rest) const {
    const std::int64_t value = file_.integer(key(rest));
    if (value <= 0 || value > INT32_MAX) refuse(rest, fmt::format("{}, not a size", value));
    return value;
  }
  std::int64_t size(const std::string& rest, std::int64_t fallback) const {
    return file_.has(key(rest)) ? size(rest) : fallback;
  }
  // The number a person wrote: f32's nearest to 1e-5 is 9.99999974e-06 in double.
  double number(const std::string& rest, double fallback) const {
    const double value = file_.number(key(rest), fallback);
    if (!std::isfinite(value)) refuse(rest, fmt::format("{}, not a number to compute with", value));
    const auto narrow = static_cast<float>(value);
    if (static_cast<double>(narrow) != value) return value;
    return std::stod(fmt::format("{}", narrow));
  }
  std::string text(const std::string& rest, const std::string& fallback) const {
    return file_.text(key(rest), fallback);
  }
  const GgufFile& file() const { return file_; }

 private:
  bool is_known(std::string_view key) const {
    // Such a family's heads have widths of their own.
    if (nn::has_latent(family_.gguf) && key.starts_with("attention.") && key.ends_with("_length")) {
      return false;
    }
    return std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) != std::end(kKnownKeys);
  }
  nn::GgufSettings::mapped_type scalar(const std::string& rest, const GgufValue& value) const {
    if (value.is_array) refuse(rest, "a list, which atoll does not know and may change results");
    switch (value.kind) {
      case GgufKind::kString:
        return file_.text(key(rest));
      case GgufKind::kBool:
        return std::int64_t{file_.boolean(key(rest), false)};
      case GgufKind::kF32:
      case GgufKind::kF64:
        return number(rest, 0);
      default:
        return file_.integer(key(rest));
    }
  }

  const GgufFile& file_;
  const nn::Family& family_;
  nn::GgufSettings own_;
};

const char* torch_name(Dtype dtype) {
  if (dtype == Dtype::kBf16) return "bfloat16";
  return dtype == Dtype::kF16 ? "float16" : "float32";
}

std::int64_t vocab_size(const GgufFile& file) {
  const GgufTensor* table = file.find("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2) {
    throw user_error("{} has no matrix token_embd.weight; is it a whole model?",
                     file.path().string());
  }
  return table->shape[0];
}

std::vector<float> read_factors(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<float> factors(static_cast<std::size_t>(tensor.shape.back()));
  file.rows(tensor).open()(0, factors);
  return factors;
}

nn::RopeScaling rope_scaling(const Settings& settings, std::int64_t head_dim, double theta) {
  using Kind = nn::RopeScaling::Kind;
  // As llama.cpp: a factor without a type is linear, and 0 is no factor.
  const double factor = settings.number("rope.scaling.factor", 1);
  const bool scales = factor != 0 && factor != 1;
  const std::string type = settings.text("rope.scaling.type", scales ? "linear" : "none");
  const GgufTensor* tensor = settings.file().find("rope_freqs.weight");
  if (type == "linear" && tensor == nullptr) return {.kind = Kind::kLinear, .factor = factor};
  if (type == "yarn" && tensor == nullptr) {
    nn::RopeScaling yarn = {.kind = Kind::kYarn, .factor = factor};
    yarn.original_max_positions =
        settings.size("rope.scaling.original_context_length", settings.size("context_length"));
    yarn.attention_factor = factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
    return yarn;
  }
  if (type != "none") {
    settings.refuse("rope.scaling.type", fmt::format("\"{}\", which atoll does not compute", type));
  }
  if (tensor == nullptr) return {};
  const auto rope = find_llama3_rope(read_factors(settings.file(), *tensor), theta, head_dim,
                                     settings.size("rope.scaling.original_context_length", 8192));
  if (!rope) {
    throw user_error(
        "{}: the tensor rope_freqs.weight is not Llama 3's scaling with low and high frequency "
        "factors 1 and 4, and atoll reads no other",
        settings.file().path().string());
  }
  return {.kind = Kind::kLlama3,
          .factor = rope->factor,
          .low_freq_factor = rope->low_freq_factor,
          .high_freq_factor = rope->high_freq_factor,
          .original_max_positions = static_cast<std::int64_t>(rope->original_positions)};
}

ops::HeadLayout read_heads(const Settings& settings) {
  ops::HeadLayout heads;
  heads.num_heads = settings.size("attention.head_count");
  if (nn::has_latent(settings.family().gguf)) {
    heads.num_kv_heads = heads.num_heads;  // 1 where files have keys in the latent form
    return heads;                          // the family reads their width
  }
  heads.num_kv_heads = settings.size("attention.head_count_kv", heads.num_heads);
  heads.head_dim =
      settings.size("attention.key_length", settings.size("embedding_length") / heads.num_heads);
  if (settings.size("attention.value_length", heads.head_dim) != heads.head_dim) {
    settings.refuse("attention.value_length",
                    fmt::format("{} where a head has {}, which atoll does not compute",
                                settings.size("attention.value_length"), heads.head_dim));
  }
  if (heads.head_dim <= 0 || heads.head_dim % 2 != 0) {
    settings.refuse("attention.head_count", fmt::format("{}, which makes heads of {} elements",
                                                        heads.num_heads, heads.head_dim));
  }
  return heads;
}

void read_rope(const Settings& settings, nn::ModelConfig& config) {
  const std::int64_t head_dim = config.heads.head_dim;
  const std::int64_t rotary_dim = nn::has_latent(settings.family().gguf)
                                      ? settings.size("rope.dimension_count")
                                      : settings.size("rope.dimension_count", head_dim);
  if (rotary_dim != head_dim && !settings.family().has_partial_rotation) {
    settings.refuse(
        "rope.dimension_count",
        fmt::format("{} where a head has {}, which atoll does not compute", rotary_dim, head_dim));
  }
  config.rotary_dim = settings.family().has_partial_rotation ? rotary_dim : 0;
  config.rope_theta = settings.number("rope.freq_base", 10000);
  config.rope_scaling = rope_scaling(settings, rotary_dim, config.rope_theta);
}

// That a family which knows no window in GGUF would not cut what it attends to.
void check_window(const Settings& settings, nn::GgufSettings& own, std::int64_t positions) {
  const auto window = own.find("attention.sliding_window");
  if (settings.family().gguf.has_windows || window == own.end()) return;
  if (const auto* width = std::get_if<std::int64_t>(&window->second);
      width == nullptr || *width < positions) {
    settings.refuse("attention.sliding_window", "shorter than context_length, which is not read");
  }
  own.erase(window);
}

// Settings that nobody has read: those named like a part of an architecture could change what is
// computed.
void refuse_own(const Settings& settings, const nn::GgufSettings& own) {
  for (const auto& [key, value] : own) {
    const bool is_known =
        std::find(std::begin(kPassedOver), std::end(kPassedOver), key) != std::end(kPassedOver);
    if (is_known || is_off(value)) continue;
    if (nn::is_named_like_architecture(key)) {
      settings.refuse(key, "a setting that atoll does not know and that may change results");
    }
    log::warning("{}: atoll passes over \"{}\", which it does not know",
                 settings.file().path().string(), settings.key(key));
  }
}

nn::ModelConfig read_shape(const Settings& settings) {
  const GgufFile& file = settings.file();
  const nn::Family& family = settings.family();
  nn::ModelConfig config;
  config.family = family.model_type;
  config.vocab_size = vocab_size(file);
  config.hidden_size = settings.size("embedding_length");
  config.intermediate_size = settings.size("feed_forward_length");
  config.num_layers = settings.size("block_count");
  config.heads = read_heads(settings);
  config.max_positions = settings.size("context_length");
  const bool is_layer_norm = family.norm == "layer_norm";
  config.norm_eps = settings.number(
      is_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      is_layer_norm ? 1e-5 : 1e-6);
  config.tie_embeddings = file.find("output.weight") == nullptr;
  config.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_up.bias") != nullptr;
  if (family.has_experts) {
    config.experts.num_experts = settings.size("expert_count");
    config.experts.top_k = settings.size("expert_used_count");
    config.experts.intermediate_size =
        settings.size("expert_feed_forward_length", config.intermediate_size);
  }
  if (family.has_rope) read_rope(settings, config);
  nn::GgufSettings own = settings.own();
  check_window(settings, own, config.max_positions);
  if (family.gguf.read != nullptr) family.gguf.read(own, config);
  refuse_own(settings, own);
  return config;
}

}  // namespace

GgufShape gguf_shape(const GgufFile& file) {
  const Settings settings(file);
  const std::int64_t heads = settings.size("attention.head_count");
  const std::int64_t even_split = settings.size("embedding_length") / heads;
  return {&settings.family().gguf, settings.size("attention.key_length", even_split),
          vocab_size(file)};
}

std::string config_from_gguf(const GgufFile& file, Dtype dtype) {
  const Settings settings(file);
  Json json = Json::parse(settings.family().to_json(read_shape(settings)));
  json["torch_dtype"] = torch_name(dtype);
  for (const char* role : {"bos", "eos", "padding"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", role);
    const std::int64_t id = file.integer(key, -1);
    const char* field = role[0] == 'p'   ? "pad_token_id"
                        : role[0] == 'b' ? "bos_token_id"
                                         : "eos_token_id";
    // Some writers say "none" with the largest number, and the tokenizer's reader tells of others
    // that are none. Null, as transformers takes 1 and 2 for the bos and eos of a llama that does
    // not say.
    const bool is_token = id >= 0 && id < vocab_size(file);
    json[field] = is_token ? Json(id) : Json();
  }
  return json.dump(2) + "\n";
}

}  // namespace atl::ckpt
