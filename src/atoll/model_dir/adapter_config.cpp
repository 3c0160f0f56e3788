#include "atoll/model_dir/adapter_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/base/log.h"
#include "atoll/nn/models/bookkeeping.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {

using nlohmann::ordered_json;

namespace {

constexpr std::int64_t kMaxRank = 65536;
constexpr const char* kLetPeftMerge =
    "let PEFT merge it (merge_and_unload, then save_pretrained) and give that model";

// Fields that are read, and those that say nothing about what a trained adapter computes. Of these
// eva_config and its like say how it began, velora_config how its gradients were computed, and
// fan_in_fan_out what the base model's own files say.
const std::set<std::string, std::less<>> kKnown = {"alpha_pattern",
                                                   "auto_mapping",
                                                   "base_model_name_or_path",
                                                   "bias",
                                                   "corda_config",
                                                   "ensure_weight_tying",
                                                   "eva_config",
                                                   "exclude_modules",
                                                   "fan_in_fan_out",
                                                   "inference_mode",
                                                   "init_lora_weights",
                                                   "layers_pattern",
                                                   "layers_to_transform",
                                                   "loftq_config",
                                                   "lora_alpha",
                                                   "lora_bias",
                                                   "lora_dropout",
                                                   "lora_ga_config",
                                                   "megatron_core",
                                                   "modules_to_save",
                                                   "peft_type",
                                                   "peft_version",
                                                   "qalora_group_size",
                                                   "r",
                                                   "rank_pattern",
                                                   "revision",
                                                   "runtime_config",
                                                   "target_modules",
                                                   "target_parameters",
                                                   "task_type",
                                                   "trainable_token_indices",
                                                   "use_dora",
                                                   "use_rslora",
                                                   "velora_config"};

// Fields that PEFT reads and atoll does not compute, with the reason.
const std::map<std::string, std::string, std::less<>> kRefused = {
    {"alora_invocation_tokens",
     "applies the adapter from certain tokens on, which no merged weight does; use PEFT for it"},
    {"arrow_config",
     "chooses among adapters for each token, which no merged weight does; use PEFT for it"},
    {"kasa_config", std::string("changes the base weights too; ") + kLetPeftMerge},
    {"layer_replication",
     std::string("repeats blocks of the base model, which makes another model; ") + kLetPeftMerge},
    {"megatron_config", std::string("names modules of Megatron; ") + kLetPeftMerge},
    {"monteclora_config", std::string("draws several adapters and mixes them; ") + kLetPeftMerge},
    {"use_bdlora", std::string("stores factors as blocks; ") + kLetPeftMerge},
    {"use_qalora", std::string("averages groups of the input first; ") + kLetPeftMerge},
};

// Words that an unknown field of an adapter's mathematics would have.
constexpr std::string_view kWords[] = {
    "adapter", "alpha", "dora",    "init",   "lora", "merge", "module",  "pattern",
    "rank",    "scale", "scaling", "target", "tie",  "token", "variant", "weight"};

// Under such a value a field changes nothing.
bool is_off(const ordered_json& value) {
  return value.is_null() || value == false || value == "none" ||
         (value.is_structured() && value.empty());
}

// An adapter's config is read several times in a run.
void warn_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) log::write(log::Level::kWarning, line);
}

// Reads fields of one object; absent ones and null are the default.
class Fields {
 public:
  Fields(const ordered_json& json, const std::string& origin) : json_(json), origin_(origin) {}

  const ordered_json* find(const char* field) const {
    const auto at = json_.find(field);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  [[noreturn]] void refuse(const char* field, std::string_view must) const {
    const ordered_json* value = find(field);
    throw user_error("{}: \"{}\" is {}, and must be {}", origin_, field,
                     value == nullptr ? "missing" : value->dump(), must);
  }
  bool flag(const char* field) const {
    const ordered_json* value = find(field);
    if (value != nullptr && !value->is_boolean()) refuse(field, "true or false");
    return value != nullptr && value->get<bool>();
  }
  // A list of texts; a single text is a list of one.
  std::vector<std::string> texts(const char* field) const {
    const ordered_json* value = find(field);
    if (value == nullptr) return {};
    if (value->is_string()) return {value->get<std::string>()};
    std::vector<std::string> list;
    if (!value->is_array()) refuse(field, "a list of names");
    for (const ordered_json& item : *value) {
      if (!item.is_string()) refuse(field, "a list of names");
      list.push_back(item.get<std::string>());
    }
    return list;
  }
  bool is_text(const char* field) const {
    const ordered_json* value = find(field);
    return value != nullptr && value->is_string();
  }
  // Not negative; a single one is a list of one.
  std::vector<std::int64_t> indices(const ordered_json& value, const char* field) const {
    std::vector<std::int64_t> list;
    const ordered_json items = value.is_array() ? value : ordered_json::array({value});
    for (const ordered_json& item : items) {
      if (!item.is_number_integer() || item < 0 || item > INT32_MAX) {
        refuse(field, "whole numbers from 0");
      }
      list.push_back(item.get<std::int64_t>());
    }
    return list;
  }
  // The members of an object.
  template <typename Value, typename Check>
  std::vector<std::pair<std::string, Value>> members(const char* field, Check&& check,
                                                     const char* must) const {
    std::vector<std::pair<std::string, Value>> list;
    const ordered_json* value = find(field);
    if (value == nullptr) return list;
    if (!value->is_object()) refuse(field, must);
    for (const auto& [key, item] : value->items()) {
      if (!check(item)) refuse(field, must);
      list.emplace_back(key, item.template get<Value>());
    }
    return list;
  }

 private:
  const ordered_json& json_;
  const std::string& origin_;
};

bool is_rank(const ordered_json& value) {
  return value.is_number_integer() && value >= 1 && value <= kMaxRank;
}

// Other starts ("pissa", "olora", "corda", ...) subtract from the base weights when PEFT loads
// them.
bool keeps_base(const ordered_json& start) {
  return start.is_boolean() || start == "gaussian" || start == "eva" || start == "mica" ||
         start == "orthogonal";
}

bool has_word_of_adapters(std::string_view field) {
  return nn::is_named_like_architecture(field) ||
         std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view word) {
           return field.find(word) != std::string_view::npos;
         });
}

void check_fields(const ordered_json& json, const std::string& origin) {
  std::vector<std::string> passed_over;
  for (const auto& [field, value] : json.items()) {
    if (kKnown.contains(field) || is_off(value)) continue;
    const auto refused = kRefused.find(field);
    if (refused != kRefused.end()) {
      throw user_error("{}: \"{}\" is {}, which {}", origin, field, value.dump(), refused->second);
    }
    if (value.is_structured() || has_word_of_adapters(field)) {
      throw user_error(
          "{}: atoll does not know the field \"{}\" (here {}) and will not guess whether it "
          "changes what the adapter computes; remove it if it does not, or {}",
          origin, field, value.dump(), kLetPeftMerge);
    }
    passed_over.push_back(fmt::format("\"{}\"", field));
  }
  if (passed_over.empty()) return;
  warn_once(fmt::format("{}: atoll passes over {}, which it does not know", origin,
                        fmt::join(passed_over, ", ")));
}

void check_kind(const Fields& fields, const std::string& origin) {
  const ordered_json* type = fields.find("peft_type");
  if (type == nullptr || *type != "LORA") {
    throw user_error("{}: \"peft_type\" is {}, and atoll reads only \"LORA\"; {}", origin,
                     type == nullptr ? "missing" : type->dump(), kLetPeftMerge);
  }
  const ordered_json* start = fields.find("init_lora_weights");
  if (start != nullptr && !keeps_base(*start)) {
    throw user_error(
        "{}: \"init_lora_weights\" is {}, which changes the base weights too; let PEFT convert it "
        "(save_pretrained with path_initial_model_for_weight_conversion)",
        origin, start->dump());
  }
  const ordered_json* bias = fields.find("bias");
  if (bias != nullptr && *bias != "none" && *bias != "all" && *bias != "lora_only") {
    fields.refuse("bias", "\"none\", \"all\" or \"lora_only\"");
  }
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void read_targets(const Fields& fields, const std::string& origin, nn::LoraOptions& lora) {
  lora.target_parameters = fields.texts("target_parameters");
  if (fields.is_text("target_modules")) {
    const std::string text = fields.texts("target_modules").front();
    if (lower(text) == "all-linear") {
      lora.targets = {"all-linear"};
    } else {
      if (text.empty()) fields.refuse("target_modules", "a list of names or a pattern");
      lora.target_pattern = text;
    }
  } else {
    lora.targets = fields.texts("target_modules");
    if (fields.find("target_modules") == nullptr && lora.target_parameters.empty()) {
      fields.refuse("target_modules", "a list of module names, or a pattern");
    }
  }
  if (fields.is_text("exclude_modules")) {
    lora.excluded_pattern = fields.texts("exclude_modules").front();
  } else {
    lora.excluded = fields.texts("exclude_modules");
  }
  if (const ordered_json* layers = fields.find("layers_to_transform")) {
    lora.layers = fields.indices(*layers, "layers_to_transform");
  }
  for (std::string& pattern : fields.texts("layers_pattern")) {
    if (!pattern.empty()) lora.layer_patterns.push_back(std::move(pattern));
  }
  if (!lora.target_pattern.empty() && !(lora.layers.empty() && lora.layer_patterns.empty())) {
    throw user_error(
        "{}: \"layers_to_transform\" and \"layers_pattern\" stand beside a list in "
        "\"target_modules\", not beside a pattern; put the blocks into the pattern",
        origin);
  }
}

void read_sizes(const Fields& fields, nn::LoraOptions& lora) {
  const ordered_json* r = fields.find("r");
  if (r == nullptr || !is_rank(*r)) fields.refuse("r", "a rank from 1 to 65536");
  lora.rank = r->get<std::int64_t>();
  const ordered_json* alpha = fields.find("lora_alpha");
  if (alpha == nullptr || !alpha->is_number()) fields.refuse("lora_alpha", "a number");
  lora.alpha = alpha->get<double>();
  lora.rank_stabilized = fields.flag("use_rslora");
  lora.ranks = fields.members<std::int64_t>("rank_pattern", is_rank,
                                            "an object of names and ranks from 1 to 65536");
  lora.alphas = fields.members<double>(
      "alpha_pattern", [](const ordered_json& value) { return value.is_number(); },
      "an object of names and numbers");
}

void read_tokens(const Fields& fields, nn::LoraOptions& lora) {
  constexpr const char* kField = "trainable_token_indices";
  const ordered_json* value = fields.find(kField);
  if (value == nullptr) return;
  if (!value->is_object()) {
    lora.tokens.emplace_back("", fields.indices(*value, kField));
    return;
  }
  for (const auto& [module, indices] : value->items()) {
    lora.tokens.emplace_back(module, fields.indices(indices, kField));
  }
}

// As PEFT has it: one number alone, or a list.
ordered_json json_of_tokens(const nn::LoraOptions& lora) {
  if (lora.tokens.empty()) return nullptr;
  if (lora.tokens.size() == 1 && lora.tokens.front().first.empty()) {
    return lora.tokens.front().second;
  }
  ordered_json json = ordered_json::object();
  for (const auto& [module, indices] : lora.tokens) json[module] = indices;
  return json;
}

template <typename List>
ordered_json list_or_null(const List& list) {
  return list.empty() ? ordered_json(nullptr) : ordered_json(list);
}

template <typename Value>
ordered_json object_of(const std::vector<std::pair<std::string, Value>>& members) {
  ordered_json json = ordered_json::object();
  for (const auto& [key, value] : members) json[key] = value;
  return json;
}

const char* bias_name(nn::LoraBias bias) {
  if (bias == nn::LoraBias::kNone) return "none";
  return bias == nn::LoraBias::kAll ? "all" : "lora_only";
}

ordered_json names_or_pattern(const std::vector<std::string>& names, const std::string& pattern) {
  return pattern.empty() ? list_or_null(names) : ordered_json(pattern);
}

}  // namespace

std::string adapter_config_json(const AdapterConfig& config, const nn::ModelConfig& model) {
  const nn::LoraOptions& lora = config.lora;
  ordered_json targets = lora.targets;
  if (!lora.target_pattern.empty()) targets = lora.target_pattern;
  if (lora.targets == std::vector<std::string>{"all-linear"}) targets = "all-linear";
  const ordered_json json = {
      {"alpha_pattern", object_of(lora.alphas)},
      {"base_model_name_or_path", config.base},
      {"bias", bias_name(lora.bias)},
      {"ensure_weight_tying", config.keeps_tied},
      {"exclude_modules", names_or_pattern(lora.excluded, lora.excluded_pattern)},
      {"fan_in_fan_out", nn::find_family(model.family, "a model").transposed_linears},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"layers_pattern", list_or_null(lora.layer_patterns)},
      {"layers_to_transform", list_or_null(lora.layers)},
      {"lora_alpha", lora.alpha},
      {"lora_bias", config.lora_bias},
      {"lora_dropout", lora.dropout},
      {"modules_to_save", list_or_null(lora.modules_to_save)},
      {"peft_type", "LORA"},
      {"r", lora.rank},
      {"rank_pattern", object_of(lora.ranks)},
      {"target_modules", targets},
      {"target_parameters", list_or_null(lora.target_parameters)},
      {"task_type", "CAUSAL_LM"},
      {"trainable_token_indices", json_of_tokens(lora)},
      {"use_dora", lora.use_dora},
      {"use_rslora", lora.rank_stabilized}};
  return json.dump(2) + "\n";
}

std::string with_base(std::string_view text, const std::string& origin, const std::string& base) {
  ordered_json json = parse_ordered_json(text, origin);
  if (!json.is_object()) throw damaged_error("{} is not a JSON object", origin);
  json["base_model_name_or_path"] = base;
  return json.dump(2) + "\n";
}

AdapterConfig parse_adapter_config(std::string_view text, const std::string& origin) {
  const ordered_json json = parse_ordered_json(text, origin);
  if (!json.is_object()) throw damaged_error("{} is not a JSON object", origin);
  const Fields fields(json, origin);
  check_kind(fields, origin);
  check_fields(json, origin);
  AdapterConfig config;
  read_targets(fields, origin, config.lora);
  read_sizes(fields, config.lora);
  read_tokens(fields, config.lora);
  config.lora.modules_to_save = fields.texts("modules_to_save");
  config.lora.use_dora = fields.flag("use_dora");
  for (const nn::LoraBias bias : {nn::LoraBias::kAdapted, nn::LoraBias::kAll}) {
    if (fields.is_text("bias") && fields.texts("bias").front() == bias_name(bias)) {
      config.lora.bias = bias;
    }
  }
  config.lora_bias = fields.flag("lora_bias");
  config.keeps_tied = fields.flag("ensure_weight_tying");
  const ordered_json* base = fields.find("base_model_name_or_path");
  if (base != nullptr && base->is_string()) config.base = base->get<std::string>();
  const nn::LoraRules patterns_are_valid(config.lora, origin);
  return config;
}

}  // namespace atl::model_dir
