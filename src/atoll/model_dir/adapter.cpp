#include "atoll/model_dir/adapter.h"

#include <nlohmann/json.hpp>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/tensor/host_access.h"

namespace atl::model_dir {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

// Fields that say nothing about what a trained adapter computes, and those that are read.
const std::set<std::string, std::less<>> kKnown = {"auto_mapping",
                                                   "base_model_name_or_path",
                                                   "inference_mode",
                                                   "init_lora_weights",
                                                   "lora_dropout",
                                                   "peft_type",
                                                   "peft_version",
                                                   "revision",
                                                   "task_type",
                                                   "target_modules",
                                                   "r",
                                                   "lora_alpha",
                                                   "use_rslora",
                                                   "fan_in_fan_out",
                                                   "runtime_config",
                                                   "eva_config",
                                                   "corda_config",
                                                   "loftq_config",
                                                   "megatron_core",
                                                   "qalora_group_size",
                                                   "ensure_weight_tying"};

// Any other field must have a value under which it changes nothing.
bool is_off(const ordered_json& value) {
  return value.is_null() || value == false || value == "none" ||
         ((value.is_object() || value.is_array()) && value.empty());
}

std::vector<std::string> targets_of(const ordered_json& json, const std::string& origin) {
  const auto at = json.find("target_modules");
  if (at != json.end() && at->is_string()) {
    const auto text = at->get<std::string>();
    if (text == "all-linear") return {text};
    throw user_error(
        "{}: \"target_modules\" is the pattern \"{}\"; atoll reads a list of module names", origin,
        text);
  }
  std::vector<std::string> targets;
  if (at != json.end() && at->is_array()) {
    for (const ordered_json& target : *at) {
      if (target.is_string()) targets.push_back(target.get<std::string>());
    }
    if (!targets.empty() && targets.size() == at->size()) return targets;
  }
  throw user_error("{}: \"target_modules\" must be a list of module names", origin);
}

// Other starts ("pissa", "olora", "corda", ...) subtract from the base weights when PEFT loads
// them.
bool keeps_base(const ordered_json& start) {
  return start.is_boolean() || start.is_null() || start == "gaussian" || start == "eva" ||
         start == "mica" || start == "orthogonal";
}

void refuse_what_we_do_not_compute(const ordered_json& json, const std::string& origin) {
  const auto type = json.find("peft_type");
  if (type == json.end() || *type != "LORA") {
    throw user_error("{}: \"peft_type\" is {}, and atoll reads only \"LORA\"", origin,
                     type == json.end() ? "missing" : type->dump());
  }
  const auto start = json.find("init_lora_weights");
  if (start != json.end() && !keeps_base(*start)) {
    throw user_error(
        "{}: \"init_lora_weights\" is {}, which changes the base weights too; let PEFT convert it "
        "(save_pretrained with path_initial_model_for_weight_conversion)",
        origin, start->dump());
  }
  for (const auto& [field, value] : json.items()) {
    if (kKnown.contains(field) || is_off(value)) continue;
    throw user_error("{}: \"{}\" is {}, which atoll does not compute", origin, field, value.dump());
  }
}

void add(float& element, double more) {
  element = static_cast<float>(static_cast<double>(element) + more);
}

void add(Bf16& element, double more) {
  element = to_bf16(static_cast<float>(static_cast<double>(to_f32(element)) + more));
}

// W[rows] += s B A of one part.
template <typename T>
void merge_part(const nn::LoraPart& part, const ckpt::SafetensorsFile& file,
                const nn::LoraOptions& lora, std::span<T> value) {
  const std::int64_t in = part.weight->spec.shape.dim(1);
  std::vector<float> a(static_cast<std::size_t>(lora.rank * in));
  std::vector<float> b(static_cast<std::size_t>(part.rows * lora.rank));
  file.read_f32(part.a_name, Tensor(a.data(), {Dtype::kF32, {lora.rank, in}}));
  file.read_f32(part.b_name, Tensor(b.data(), {Dtype::kF32, {part.rows, lora.rank}}));
  std::vector<double> change(static_cast<std::size_t>(in));
  for (std::int64_t row = 0; row < part.rows; ++row) {
    std::fill(change.begin(), change.end(), 0.0);
    for (std::int64_t j = 0; j < lora.rank; ++j) {
      const auto weight = static_cast<double>(b[static_cast<std::size_t>(row * lora.rank + j)]);
      const float* direction = a.data() + j * in;
      for (std::int64_t i = 0; i < in; ++i) {
        change[static_cast<std::size_t>(i)] += weight * static_cast<double>(direction[i]);
      }
    }
    const auto begin = static_cast<std::size_t>((part.row_begin + row) * in);
    for (std::size_t i = 0; i < change.size(); ++i) add(value[begin + i], lora.scale() * change[i]);
  }
}

void refuse_unknown_tensors(const ckpt::SafetensorsFile& file,
                            const std::set<std::string>& expected) {
  for (const ckpt::SafetensorsEntry& entry : file.entries()) {
    if (expected.contains(entry.name)) continue;
    throw user_error(
        "{}: the tensor {} belongs to no module that {} adapts; they do not belong together",
        file.path().string(), entry.name, kAdapterConfigFile);
  }
}

}  // namespace

std::string adapter_config_json(const AdapterConfig& config, const nn::ModelConfig& model) {
  ordered_json json = {
      {"base_model_name_or_path", config.base},
      {"bias", "none"},
      {"fan_in_fan_out", nn::find_family(model.family, "a model").transposed_linears},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_alpha", config.lora.alpha},
      {"lora_dropout", 0.0},
      {"modules_to_save", nullptr},
      {"peft_type", "LORA"},
      {"r", config.lora.rank},
      {"target_modules", config.lora.targets},
      {"task_type", "CAUSAL_LM"},
      {"use_rslora", config.lora.rank_stabilized}};
  if (config.lora.targets == std::vector<std::string>{"all-linear"}) {
    json["target_modules"] = "all-linear";
  }
  return json.dump(2) + "\n";
}

AdapterConfig parse_adapter_config(std::string_view text, const std::string& origin) {
  const ordered_json json = parse_ordered_json(text, origin);
  if (!json.is_object()) throw damaged_error("{} is not a JSON object", origin);
  refuse_what_we_do_not_compute(json, origin);
  AdapterConfig config;
  config.lora.targets = targets_of(json, origin);
  const auto r = json.find("r");
  if (r == json.end() || !r->is_number_integer() || *r < 1 || *r > 65536) {
    throw user_error("{}: \"r\" must be a rank from 1 to 65536", origin);
  }
  config.lora.rank = r->get<std::int64_t>();
  const auto alpha = json.find("lora_alpha");
  if (alpha == json.end() || !alpha->is_number()) {
    throw user_error("{}: \"lora_alpha\" must be a number", origin);
  }
  config.lora.alpha = alpha->get<double>();
  config.lora.rank_stabilized = json.contains("use_rslora") && json["use_rslora"] == true;
  const auto base = json.find("base_model_name_or_path");
  if (base != json.end() && base->is_string()) config.base = base->get<std::string>();
  return config;
}

bool holds_adapter(const fs::path& directory) {
  return path_exists(directory / kAdapterConfigFile);
}

namespace {

AdapterConfig read_adapter_config(const fs::path& directory) {
  const fs::path path = directory / kAdapterConfigFile;
  return parse_adapter_config(read_file(path), path.string());
}

}  // namespace

AdapterMerge::AdapterMerge(const fs::path& directory, nn::Model& model)
    : lora_(read_adapter_config(directory).lora),
      file_(directory / kAdapterWeightsFile),
      parts_(nn::lora_parts(model, lora_)) {
  std::set<std::string> expected;
  for (const nn::LoraPart& part : parts_) expected.insert({part.a_name, part.b_name});
  refuse_unknown_tensors(file_, expected);
}

void AdapterMerge::add_to(const nn::Param& param, const Tensor& value) const {
  for (const nn::LoraPart& part : parts_) {
    if (part.weight != &param) continue;
    if (value.dtype() == Dtype::kBf16) {
      update_on_host<Bf16>(value, [&](auto all) { merge_part<Bf16>(part, file_, lora_, all); });
    } else {
      update_on_host<float>(value, [&](auto all) { merge_part<float>(part, file_, lora_, all); });
    }
  }
}

void merge_adapter(const fs::path& directory, nn::Model& model) {
  const AdapterMerge merge(directory, model);
  std::set<const nn::Param*> done;
  for (const nn::LoraPart& part : merge.parts()) {
    if (done.insert(part.weight).second) merge.add_to(*part.weight, part.weight->value);
  }
}

void load_adapter(const fs::path& directory, parallel::ParamStore& store, ThreadPool& threads) {
  const fs::path path = directory / kAdapterWeightsFile;
  const ckpt::SafetensorsSet files(std::span(&path, 1));
  parallel::fill_pieces(
      store.layout(), parallel::pieces_to_fill(store), &threads,
      [&](const std::string& /*values*/, const nn::Param& param, const Tensor& whole) {
        ckpt::read_param(files, {&param, whole});
      });
  store.values_filled();
}

}  // namespace atl::model_dir
