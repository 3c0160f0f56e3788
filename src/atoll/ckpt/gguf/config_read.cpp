#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/names.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::ordered_json;

// Keys under "<architecture>." that are understood, or say nothing about what is computed. Any
// other could, and is refused by name.
constexpr const char* kKnownKeys[] = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
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

// Settings of a file, their keys without the architecture before them.
class Settings {
 public:
  explicit Settings(const GgufFile& file)
      : file_(file), architecture_(file.text("general.architecture")) {
    if (!is_gguf_architecture(architecture_)) {
      throw user_error("{}: general.architecture is \"{}\", and atoll reads {}",
                       file.path().string(), architecture_, gguf_architectures());
    }
    for (const auto& [key, value] : file.metadata()) {
      const std::string prefix = architecture_ + ".";
      if (!key.starts_with(prefix)) continue;
      const std::string_view rest = std::string_view(key).substr(prefix.size());
      if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), rest) == std::end(kKnownKeys)) {
        refuse(std::string(rest), "a setting that atoll does not know and that may change results");
      }
    }
    if (file.integer(key("expert_count"), 0) != 0) {
      refuse("expert_count",
             "a mixture of experts, which atoll reads from Hugging Face directories alone");
    }
  }

  std::string key(const std::string& rest) const { return architecture_ + "." + rest; }
  [[noreturn]] void refuse(const std::string& rest, std::string_view what) const {
    throw user_error("{}: \"{}\" is {}", file_.path().string(), key(rest), what);
  }
  const std::string& architecture() const { return architecture_; }

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
  const GgufFile& file_;
  std::string architecture_;
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

Json rope_scaling(const Settings& settings, std::int64_t head_dim, double theta) {
  // As llama.cpp: a factor without a type is linear, and 0 is no factor.
  const double factor = settings.number("rope.scaling.factor", 1);
  const bool scales = factor != 0 && factor != 1;
  const std::string type = settings.text("rope.scaling.type", scales ? "linear" : "none");
  const GgufTensor* tensor = settings.file().find("rope_freqs.weight");
  if (type == "linear" && tensor == nullptr) {
    return {{"rope_type", "linear"}, {"factor", factor}};
  }
  if (type != "none") {
    settings.refuse("rope.scaling.type", fmt::format("\"{}\", which atoll does not compute", type));
  }
  if (tensor == nullptr) return nullptr;
  const auto rope = find_llama3_rope(read_factors(settings.file(), *tensor), theta, head_dim,
                                     settings.size("rope.scaling.original_context_length", 8192));
  if (!rope) {
    throw user_error(
        "{}: the tensor rope_freqs.weight is not Llama 3's scaling with low and high frequency "
        "factors 1 and 4, and atoll reads no other",
        settings.file().path().string());
  }
  return {
      {"rope_type", "llama3"},
      {"factor", rope->factor},
      {"low_freq_factor", rope->low_freq_factor},
      {"high_freq_factor", rope->high_freq_factor},
      {"original_max_position_embeddings", static_cast<std::int64_t>(rope->original_positions)}};
}

struct Heads {
  std::int64_t count = 0;
  std::int64_t kv_count = 0;
  std::int64_t dim = 0;
};

Heads read_heads(const Settings& settings) {
  Heads heads;
  heads.count = settings.size("attention.head_count");
  heads.kv_count = settings.size("attention.head_count_kv", heads.count);
  heads.dim =
      settings.size("attention.key_length", settings.size("embedding_length") / heads.count);
  for (const char* same : {"attention.value_length", "rope.dimension_count"}) {
    if (settings.size(same, heads.dim) != heads.dim) {
      settings.refuse(same, fmt::format("{} where a head has {}, which atoll does not compute",
                                        settings.size(same), heads.dim));
    }
  }
  if (heads.dim <= 0 || heads.dim % 2 != 0) {
    settings.refuse("attention.head_count",
                    fmt::format("{}, which makes heads of {} elements", heads.count, heads.dim));
  }
  return heads;
}

Json rotary_config(const Settings& settings) {
  const GgufFile& file = settings.file();
  const std::string& family = settings.architecture();
  const Heads heads = read_heads(settings);
  const double theta = settings.number("rope.freq_base", 10000);
  const std::int64_t positions = settings.size("context_length");
  if (settings.size("attention.sliding_window", positions) < positions) {
    settings.refuse("attention.sliding_window", "shorter than context_length, which is not read");
  }
  const char* name = family == "llama"   ? "LlamaForCausalLM"
                     : family == "qwen2" ? "Qwen2ForCausalLM"
                                         : "Qwen3ForCausalLM";
  Json json = {{"architectures", {name}},
               {"model_type", family},
               {"vocab_size", vocab_size(file)},
               {"hidden_size", settings.size("embedding_length")},
               {"intermediate_size", settings.size("feed_forward_length")},
               {"num_hidden_layers", settings.size("block_count")},
               {"num_attention_heads", heads.count},
               {"num_key_value_heads", heads.kv_count},
               {"hidden_act", "silu"},
               {"max_position_embeddings", positions},
               {"rms_norm_eps", settings.number("attention.layer_norm_rms_epsilon", 1e-6)},
               {"rope_theta", theta},
               {"rope_scaling", rope_scaling(settings, heads.dim, theta)},
               {"tie_word_embeddings", file.find("output.weight") == nullptr}};
  if (family == "llama") {
    json["attention_bias"] = file.find("blk.0.attn_q.bias") != nullptr;
    json["mlp_bias"] = file.find("blk.0.ffn_up.bias") != nullptr;
  }
  if (family == "qwen3") json["attention_bias"] = false;
  if (family == "llama" || family == "qwen3") json["head_dim"] = heads.dim;
  if (family != "llama") json["use_sliding_window"] = false;
  return json;
}

Json gpt2_config(const Settings& settings) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", vocab_size(settings.file())},
          {"n_embd", settings.size("embedding_length")},
          {"n_head", settings.size("attention.head_count")},
          {"n_inner", settings.size("feed_forward_length")},
          {"n_layer", settings.size("block_count")},
          {"n_positions", settings.size("context_length")},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", settings.number("attention.layer_norm_epsilon", 1e-5)},
          {"tie_word_embeddings", settings.file().find("output.weight") == nullptr}};
}

}  // namespace

GgufShape gguf_shape(const GgufFile& file) {
  const Settings settings(file);
  const std::int64_t heads = settings.size("attention.head_count");
  const std::int64_t even_split = settings.size("embedding_length") / heads;
  return {settings.architecture(), settings.size("attention.key_length", even_split),
          vocab_size(file)};
}

std::string config_from_gguf(const GgufFile& file, Dtype dtype) {
  const Settings settings(file);
  Json json = settings.architecture() == "gpt2" ? gpt2_config(settings) : rotary_config(settings);
  json["torch_dtype"] = torch_name(dtype);
  for (const char* role : {"bos", "eos", "padding"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", role);
    const std::int64_t id = file.integer(key, -1);
    const char* field = role[0] == 'p'   ? "pad_token_id"
                        : role[0] == 'b' ? "bos_token_id"
                                         : "eos_token_id";
    // Some writers say "none" with the largest number. Null, as transformers takes 1 and 2 for the
    // bos and eos of a llama that does not say.
    const bool is_named = id != -1 && id != UINT32_MAX;
    if (is_named && (id < 0 || id >= vocab_size(file))) {
      throw damaged_error("{}: \"{}\" is {}, and the model has the tokens 0 to {}",
                          file.path().string(), key, id, vocab_size(file) - 1);
    }
    json[field] = is_named ? Json(id) : Json();
  }
  return json.dump(2) + "\n";
}

}  // namespace atl::ckpt
