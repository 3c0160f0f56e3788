#include "atoll/train/model_source.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/parallel/whole_state.h"
#include "atoll/train/adapter.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

bool holds_tokenizer(const fs::path& directory) {
  return fs::exists(directory / "tokenizer.json") || fs::exists(directory / "tokenizer.model");
}

bool is_adapter_param(const nn::Param& param) {
  return !param.files.empty() && param.files.front().name.starts_with("base_model.model.");
}

}  // namespace

fs::path find_model(const fs::path& argument) {
  if (!fs::exists(argument)) throw user_error("there is no directory {}", argument.string());
  if (fs::exists(argument / "config.json") || holds_adapter(argument)) {
    if (fs::exists(argument / "manifest.json")) ckpt::verify_checkpoint(argument);
    return argument;
  }
  if (fs::is_directory(argument / "checkpoints")) {
    if (const auto newest = ckpt::newest_verified(argument / "checkpoints")) return newest->path;
  }
  throw user_error(
      "{} is neither a model directory (it has no config.json) nor a run with a checkpoint (it has "
      "no checkpoints/step-*)",
      argument.string());
}

fs::path base_directory(const fs::path& directory) {
  if (!holds_adapter(directory)) return directory;
  const fs::path path = directory / kAdapterConfigFile;
  const AdapterConfig config = parse_adapter_config(read_file(path), path.string());
  const fs::path base = config.base;
  if (fs::exists(base / "config.json")) {
    if (holds_adapter(base)) {
      throw user_error("{}: the base model {} is an adapter itself; merge that one first",
                       path.string(), base.string());
    }
    return base;
  }
  // Whoever edits a checkpoint damages it.
  const bool is_checkpoint = fs::exists(directory / "manifest.json");
  throw user_error(
      "{}: \"base_model_name_or_path\" is \"{}\", and there is no model directory of that name; {}",
      path.string(), config.base,
      is_checkpoint ? "put it back there, or `atoll export` the adapter and write the path of the "
                      "base model's directory into the copy"
                    : "write the path of the base model's directory there");
}

nn::ModelConfig read_model_config(const fs::path& directory) {
  const fs::path path = base_directory(directory) / "config.json";
  return nn::parse_config(read_file(path), path.string());
}

Tokenizer load_tokenizer(const fs::path& directory) {
  return Tokenizer::load(holds_tokenizer(directory) ? directory : base_directory(directory));
}

std::vector<std::int32_t> stop_tokens(const fs::path& directory, const Tokenizer& tokenizer) {
  std::set<std::int32_t> tokens;
  if (const auto end = tokenizer.end_of_text()) tokens.insert(*end);
  for (const char* name : {"generation_config.json", "config.json"}) {
    fs::path path = directory / name;
    if (!fs::exists(path)) path = base_directory(directory) / name;
    if (!fs::exists(path)) continue;
    const auto json = nlohmann::json::parse(read_file(path), nullptr, false);
    if (!json.is_object()) throw damaged_error("{} is not a JSON object", path.string());
    const auto at = json.find("eos_token_id");
    if (at == json.end()) continue;
    const nlohmann::json ids = at->is_array() ? *at : nlohmann::json::array({*at});
    for (const nlohmann::json& id : ids) {
      if (id.is_number_integer()) tokens.insert(id.get<std::int32_t>());
    }
  }
  return {tokens.begin(), tokens.end()};
}

namespace {

// The parameters of a model directory, an adapter merged in.
class Source {
 public:
  // `params`: all of the model's own.
  Source(const fs::path& directory, nn::Model& model, std::span<const nn::Param* const> params)
      : base_(base_directory(directory)), found_(base_, params) {
    if (holds_adapter(directory)) merge_.emplace(directory, model);
  }
  void read(const nn::Param& param, const Tensor& whole) const {
    found_.read({&param, whole});
    if (merge_) merge_->add_to(param, whole);
  }

 private:
  ckpt::HfDirectory base_;
  ckpt::DirectoryParams found_;
  std::optional<AdapterMerge> merge_;
};

}  // namespace

void load_parameters(const fs::path& directory, nn::Model& model, parallel::ParamStore& store,
                     ThreadPool& threads) {
  std::vector<const nn::Param*> params;  // without those of LoRA
  for (const nn::Param* param : store.params()) {
    if (!is_adapter_param(*param)) params.push_back(param);
  }
  const bool has_adapter = params.size() < store.params().size();
  if (has_adapter && holds_adapter(directory)) {
    throw user_error(
        "{} is an adapter already; merge it (`atoll export --merge`) before adding another, or "
        "go on with its own run",
        directory.string());
  }
  const Source source(directory, model, params);
  const auto frozen = store.frozen();
  threads.run(static_cast<std::int64_t>(frozen.size()), [&](std::int64_t i) {
    const nn::Param& param = *frozen[static_cast<std::size_t>(i)];
    source.read(param, param.value);
  });
  if (has_adapter) return;  // it alone is trained
  parallel::fill_pieces(store.layout(), parallel::held_pieces(store, nullptr), threads,
                        [&](const std::string& /*values*/, const nn::Param& param,
                            const Tensor& whole) { source.read(param, whole); });
}

void load_whole_parameters(const fs::path& directory, nn::Model& model,
                           parallel::ParamStore& store) {
  const std::vector<const nn::Param*> params(store.params().begin(), store.params().end());
  const Source source(directory, model, params);
  store.write_whole([&](std::span<const parallel::WholeParam> some) {
    for (const auto& [param, tensor] : some) source.read(*param, tensor);
  });
}

}  // namespace atl::train
