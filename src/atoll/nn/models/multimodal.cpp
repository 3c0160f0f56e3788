#include "atoll/nn/models/multimodal.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/nn/models/warn_once.h"

namespace atl::nn {

namespace {

using Json = nlohmann::ordered_json;

// What transformers takes for the language model's fields that the file leaves out, where atoll has
// no default of its own for them, or another one.
struct Sizes {
  int vocab_size, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size,
      num_key_value_heads;
  double rms_norm_eps;
  double rope_theta = 0;  // 0: the family's
  int max_positions = 0;  // likewise
};

// The language model of a config.json, by its own "model_type".
struct TextModel {
  const char* model_type;
  const char* family;
  const char* architecture;
  Sizes sizes;
};

constexpr TextModel kTextModels[] = {
    {"llama", "llama", "LlamaForCausalLM", {32000, 4096, 32, 32, 11008, 0, 1e-6}},
    {"mistral", "mistral", "MistralForCausalLM", {32000, 4096, 32, 32, 14336, 8, 1e-6}},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", {151936, 4096, 32, 32, 22016, 32, 1e-6}},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", {151936, 4096, 32, 32, 22016, 32, 1e-6}},
    {"gemma3_text", "gemma3_text", "Gemma3ForCausalLM", {262208, 2304, 26, 8, 9216, 4, 1e-6}},
    {"qwen2_vl_text", "qwen2", "Qwen2ForCausalLM", {152064, 8192, 80, 64, 29568, 8, 1e-5, 1e6}},
    {"qwen2_5_vl_text", "qwen2", "Qwen2ForCausalLM", {152064, 8192, 80, 64, 29568, 8, 1e-5, 1e6}},
    {"qwen3_vl_text",
     "qwen3",
     "Qwen3ForCausalLM",
     {151936, 4096, 32, 32, 22016, 32, 1e-6, 5e5, 128000}},
};

// A multimodal model, and what its language model is where the file does not say.
struct Multimodal {
  const char* model_type;
  const char* text_model;
};

constexpr Multimodal kMultimodal[] = {
    {"gemma3", "gemma3_text"},
    {"mistral3", "mistral"},
    {"llava", "llama"},
    {"llava_next", "llama"},
    {"llava_onevision", "qwen2"},
    {"qwen2_vl", "qwen2_vl_text"},
    {"qwen2_5_vl", "qwen2_5_vl_text"},
    {"qwen3_vl", "qwen3_vl_text"},
    {"idefics3", "llama"},
    {"smolvlm", "llama"},
    {"internvl", "qwen2"},
};

// Of pictures, beside the fields of the language model: Qwen2-VL's first files have both on one
// level, and the language models of Idefics 3 and SmolVLM carry fields that their layers do not
// read.
constexpr std::string_view kOfPictures[] = {
    "image_token_id",      "image_token_index",     "perceiver_config", "pixel_shuffle_factor",
    "qk_layer_norms",      "use_resampler",         "video_token_id",   "vision_config",
    "vision_end_token_id", "vision_start_token_id", "vision_token_id",  "text_config"};

// What the whole file says of all its parts.
constexpr const char* kOfAll[] = {
    "bos_token_id", "eos_token_id",        "pad_token_id",        "dtype",
    "torch_dtype",  "quantization_config", "transformers_version"};

template <typename Table>
const auto* find_type(const Table& table, std::string_view model_type) {
  const auto at = std::find_if(std::begin(table), std::end(table),
                               [&](const auto& entry) { return model_type == entry.model_type; });
  return at == std::end(table) ? nullptr : &*at;
}

std::string text_of(const Json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

// The three positions of a text token are equal, whatever pairs each of them turns.
void without_mrope(Json& text) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const auto at = text.find(field);
    if (at == text.end() || !at->is_object()) continue;
    at->erase("mrope_section");
    at->erase("mrope_interleaved");
    for (const char* type : {"type", "rope_type"}) {
      if (text_of(*at, type) == "mrope") (*at)[type] = "default";
    }
  }
}

void add_sizes(Json& text, const Sizes& sizes) {
  const auto add = [&](const char* field, const auto& value) {
    if (!text.contains(field)) text[field] = value;
  };
  add("vocab_size", sizes.vocab_size);
  add("hidden_size", sizes.hidden_size);
  add("num_hidden_layers", sizes.num_hidden_layers);
  add("num_attention_heads", sizes.num_attention_heads);
  add("intermediate_size", sizes.intermediate_size);
  if (sizes.num_key_value_heads > 0) add("num_key_value_heads", sizes.num_key_value_heads);
  add("rms_norm_eps", sizes.rms_norm_eps);
  if (sizes.max_positions > 0) add("max_position_embeddings", sizes.max_positions);
  const auto rope = text.find("rope_parameters");
  const bool has_theta = rope != text.end() && rope->is_object() && rope->contains("rope_theta");
  if (sizes.rope_theta > 0 && !has_theta) add("rope_theta", sizes.rope_theta);
}

// Whether either object says that the head is the embedding; nothing where neither speaks of it.
// Files have it here or there, as transformers' versions put it; true stands above false, as there.
std::optional<bool> tied_head(const Json& whole, const Json& text) {
  std::optional<bool> tied;
  for (const Json* object : {&whole, &text}) {
    const auto at = object->find("tie_word_embeddings");
    if (at == object->end() || !at->is_boolean()) continue;
    tied = tied.value_or(false) || at->get<bool>();
  }
  return tied;
}

}  // namespace

std::optional<LanguagePart> language_part(std::string_view json, const std::string& origin) {
  const Json whole = parse_ordered_json(json, origin);
  if (!whole.is_object()) throw damaged_error("{} is not a JSON object", origin);
  const Multimodal* model = find_type(kMultimodal, text_of(whole, "model_type"));
  if (model == nullptr) return std::nullopt;
  const auto nested = whole.find("text_config");
  const bool is_nested = nested != whole.end() && !nested->is_null();
  if (is_nested && !nested->is_object()) {
    throw user_error("{}: \"text_config\" must be an object, not {}", origin, nested->dump());
  }
  Json text = is_nested ? *nested : whole;
  std::string type = is_nested ? text_of(text, "model_type") : "";
  if (type.empty() || type == model->model_type) type = model->text_model;
  const TextModel* found = find_type(kTextModels, type);
  if (found == nullptr) {
    throw user_error(
        "{}: \"model_type\" of \"text_config\" is \"{}\", and atoll reads multimodal models whose "
        "language model is llama, mistral, qwen2, qwen3 or gemma3_text",
        origin, type);
  }
  for (const std::string_view field : kOfPictures) text.erase(std::string(field));
  for (const char* field : kOfAll) {
    if (!text.contains(field) && whole.contains(field)) text[field] = whole[field];
  }
  add_sizes(text, found->sizes);
  without_mrope(text);
  const std::optional<bool> tied = tied_head(whole, text);
  if (tied) text["tie_word_embeddings"] = *tied;
  text["model_type"] = found->family;
  text["architectures"] = {found->architecture};
  warn_once(
      fmt::format("{} is of a model that reads pictures, too ({}): atoll takes its language "
                  "model ({}) alone, and leaves out the rest",
                  origin, model->model_type, found->family));
  return LanguagePart{text.dump(2) + "\n", tied.has_value()};
}

std::string with_tied_head(const std::string& config_json, bool tied) {
  Json json = parse_ordered_json(config_json, "config.json");
  json["tie_word_embeddings"] = tied;
  return json.dump(2) + "\n";
}

std::string language_tensor(std::string_view name) {
  constexpr std::string_view kOthers[] = {"model.connector.",
                                          "model.image_newline",
                                          "model.multi_modal_projector.",
                                          "model.vision_model.",
                                          "model.vision_tower.",
                                          "model.visual.",
                                          "image_newline",
                                          "multi_modal_projector.",
                                          "vision_tower.",
                                          "visual."};
  for (const std::string_view other : kOthers) {
    if (name.starts_with(other)) return "";
  }
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
      {"language_model.model.", "model."},
      {"language_model.lm_head.", "lm_head."},
      {"model.language_model.", "model."},
      {"model.text_model.", "model."}};
  for (const auto& [theirs, ours] : kRenamed) {
    if (name.starts_with(theirs))
      return std::string(ours) + std::string(name.substr(theirs.size()));
  }
  return std::string(name);
}

}  // namespace atl::nn
