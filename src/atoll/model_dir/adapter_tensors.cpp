#include "atoll/model_dir/adapter_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/model_dir/adapter_config.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_wrapper(std::string_view part) {
  return part == "_orig_mod" || part == "_fsdp_wrapped_module" ||
         part == "_checkpoint_wrapped_module" || part == "modules_to_save";
}

// After which an adapter's name may stand.
bool is_factor(std::string_view part) {
  return part.starts_with("lora_") || part == "modules_to_save" || part == "trainable_tokens_delta";
}

// Of the training with VeLoRA, which compresses what the backward pass keeps; and the base model's
// own tensor, which PEFT saves beside the trained one where the model has got more tokens.
bool is_passed_over(std::string_view plain) {
  return plain.find(".lora_velora_") != std::string_view::npos ||
         plain.find(".original_module.") != std::string_view::npos;
}

bool same_values(const ckpt::SafetensorsFile& file, const std::string& a, const std::string& b) {
  if (file.spec(a) != file.spec(b)) return false;
  const auto left = file.bytes(a);
  const auto right = file.bytes(b);
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

fs::path weights_file(const fs::path& directory) {
  if (!path_exists(directory / kAdapterWeightsFile) &&
      path_exists(directory / "adapter_model.bin")) {
    throw user_error(
        "{} has its weights in adapter_model.bin, a pickle, which may run code when it is read; "
        "write them with safetensors (load it in PEFT, then save_pretrained)",
        directory.string());
  }
  return directory / kAdapterWeightsFile;
}

}  // namespace

std::string plain_name(std::string_view name) {
  const std::vector<std::string_view> parts = parts_of(name);
  std::size_t begin = 0;
  while (begin < parts.size() && (parts[begin] == "module" || is_wrapper(parts[begin]))) ++begin;
  while (begin + 2 < parts.size() && parts[begin] == "base_model" && parts[begin + 1] == "model") {
    begin += 2;
  }
  std::vector<std::string_view> kept;
  for (std::size_t i = begin; i < parts.size(); ++i) {
    const bool is_name = parts[i] == "default" && i > 0 && is_factor(parts[i - 1]);
    // Of a parameter that is adapted without its module, base_layer tells two factors apart.
    const bool is_base = parts[i] == "base_layer" && i + 2 == parts.size();
    // PEFT saves a whole table beside its trained rows where the model has got more tokens.
    const bool is_table =
        parts[i] == "token_adapter" && i + 3 == parts.size() && parts[i + 1] == "base_layer";
    const bool is_length =
        parts[i] == "weight" && !kept.empty() && kept.back() == "lora_magnitude_vector";
    if (is_name || is_base || is_table || is_length || is_wrapper(parts[i])) continue;
    kept.push_back(parts[i]);
  }
  return fmt::format("{}", fmt::join(kept, "."));
}

AdapterTensors::AdapterTensors(const fs::path& directory) : file_(weights_file(directory)) {
  for (const ckpt::SafetensorsEntry& entry : file_.entries()) {
    const std::string plain = plain_name(entry.name);
    if (is_passed_over(plain)) continue;
    const auto [at, is_new] = names_.emplace(plain, entry.name);
    if (is_new || same_values(file_, at->second, entry.name)) continue;
    throw user_error("{}: {} and {} are both {}; remove the one that is not the adapter's",
                     file_.path().string(), at->second, entry.name, plain);
  }
}

const std::string& AdapterTensors::name_of(const std::string& plain) const {
  const auto at = names_.find(plain);
  if (at == names_.end()) {
    throw user_error("{}: {} is missing, which {} asks for; they do not belong together",
                     file_.path().string(), plain, kAdapterConfigFile);
  }
  return at->second;
}

std::string AdapterTensors::use(const std::string& plain) {
  used_.insert(plain);
  return name_of(plain);
}

std::vector<float> AdapterTensors::read(const std::string& name, const Shape& shape) const {
  std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
  file_.read_f32(name, Tensor(values.data(), {Dtype::kF32, shape}));
  return values;
}

void AdapterTensors::refuse_unused() const {
  for (const auto& [plain, name] : names_) {
    if (used_.contains(plain)) continue;
    throw user_error(
        "{}: the tensor {} belongs to no module that {} adapts; they do not belong together, or "
        "the base model is another one",
        file_.path().string(), name, kAdapterConfigFile);
  }
}

}  // namespace atl::model_dir
