#include "atoll/train/checkpointing.h"

#include <nlohmann/json.hpp>

#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/ckpt/hf_directory.h"
#include "atoll/ckpt/hf_weights.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/train/adapter.h"

namespace atl::train {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

std::vector<ckpt::ParamTensor> values_of(std::span<nn::Param* const> params) {
  std::vector<ckpt::ParamTensor> held;
  for (const nn::Param* param : params) held.push_back({param, param->value});
  return held;
}

// A piece of optimizer state, cut into tensors of the shapes of the parameters it covers.
std::vector<ckpt::ParamTensor> cut(const parallel::ParamStore& store,
                                   const optim::StateTensor& piece) {
  std::vector<ckpt::ParamTensor> held;
  for (std::size_t i = 0; i < store.trained().size(); ++i) {
    const Spec& spec = store.trained()[i]->spec;
    const std::int64_t begin = store.offset(i) - piece.begin;
    const std::int64_t end = begin + spec.shape.num_elements();
    if (begin < 0 || end > piece.tensor.num_elements()) continue;
    const Tensor part = piece.tensor.rows(begin, end);
    held.push_back({store.trained()[i], part.reshaped(spec.shape)});
  }
  return held;
}

// The config.json of a checkpoint: its dtype is that of the tensors beside it, or readers would
// narrow them. An adapter's says what the base model's does.
std::string config_of(TrainState& state) {
  const std::string config = nn::config_json(state.model().config);
  if (state.options().lora) return config;
  return ckpt::with_dtype(config, state.options().build.dtype, "config.json");
}

std::string to_json(const Position& position) {
  ordered_json json = {{"format", "atoll trainer state"},
                       {"version", 1},
                       {"step", position.step},
                       {"tokens", position.tokens},
                       {"corpus_hash", position.corpus_hash},
                       {"line_steps", position.line_steps},
                       {"line_loss", position.line_loss}};
  if (!position.base_hash.empty()) json["base_hash"] = position.base_hash;
  for (const auto& [key, value] : position.settings) json["settings"][key] = value;
  return json.dump(2) + "\n";
}

Position parse_position(const std::string& text, const std::string& origin) {
  try {
    const ordered_json json = ordered_json::parse(text);
    if (json.at("version") != 1) {
      throw user_error("{} is of version {}, and this atoll reads version 1", origin,
                       json.at("version").dump());
    }
    Position position;
    position.step = json.at("step").get<std::int64_t>();
    position.tokens = json.at("tokens").get<std::int64_t>();
    position.corpus_hash = json.at("corpus_hash").get<std::string>();
    position.base_hash = json.value("base_hash", "");
    position.line_steps = json.at("line_steps").get<std::int64_t>();
    position.line_loss = json.at("line_loss").get<double>();
    for (const auto& [key, value] : json.at("settings").items()) {
      position.settings.emplace_back(key, value.get<std::string>());
    }
    return position;
  } catch (const ordered_json::exception& error) {
    throw damaged_error("{} is not a trainer state: {}", origin, error.what());
  }
}

}  // namespace

fs::path save_checkpoint(const fs::path& root, TrainState& state, const Position& position,
                         const CarriedFiles& carried, const fs::path& base) {
  ckpt::CheckpointWriter writer(root, position.step);
  writer.add("config.json", config_of(state));
  for (const auto& [name, content] : carried) writer.add(name, content);
  // transformers asks for this entry before it loads a file.
  const ckpt::Metadata metadata = {{"format", "pt"}};
  const auto weights = ckpt::file_sources(values_of(state.store().trained()));
  if (const auto& lora = state.options().lora) {
    const AdapterConfig config = {*lora, fs::absolute(base).string()};
    writer.add(kAdapterConfigFile, adapter_config_json(config, state.model().config));
    writer.add_tensors(kAdapterWeightsFile, weights, metadata);
  } else {
    writer.add_tensors("model.safetensors", weights, metadata);
  }
  std::vector<ckpt::TensorSource> sources;
  for (const optim::StateTensor& piece : state.optimizer().state()) {
    const auto part = ckpt::file_sources(cut(state.store(), piece), piece.name + ".");
    sources.insert(sources.end(), part.begin(), part.end());
  }
  writer.add_tensors("optimizer.safetensors", sources);
  writer.add("trainer.json", to_json(position));
  return writer.commit();
}

Position read_position(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "trainer.json";
  return parse_position(read_file(path), path.string());
}

Position load_checkpoint(const ckpt::CheckpointInfo& checkpoint, TrainState& state) {
  const fs::path& path = checkpoint.path;
  const std::string config = read_file(path / "config.json");
  if (config != config_of(state)) {
    throw user_error(
        "the checkpoint {} is of another model than the settings describe; give back the model.* "
        "settings it was made with, or choose another run.dir",
        path.string());
  }
  if (state.options().lora) {
    load_adapter(path, state.store());
  } else {
    load_parameters(path, state.model(), state.store());
  }
  const ckpt::SafetensorsFile optimizer(path / "optimizer.safetensors");
  for (const optim::StateTensor& piece : state.optimizer().state()) {
    ckpt::read_params(optimizer, cut(state.store(), piece), piece.name + ".");
  }
  return read_position(path);
}

std::string hash_of_frozen(const parallel::ParamStore& store) {
  if (store.frozen().empty()) return "";
  Hasher hasher;
  for (const nn::Param* param : store.frozen()) {
    hasher.update(param->value.raw(), param->value.bytes());
  }
  return to_hex(hasher.digest());
}

CarriedFiles read_carried(const fs::path& directory) {
  CarriedFiles carried;
  for (const char* name : ckpt::carried_file_names()) {
    if (fs::exists(directory / name)) carried[name] = read_file(directory / name);
  }
  // What the files kept narrow, an export gives back as narrow.
  if (fs::exists(directory / "config.json") && !holds_adapter(directory)) {
    carried[ckpt::kSourceDtypesFile] = ckpt::HfDirectory(directory).source_dtypes_json();
  }
  return carried;
}

bool carry_tokenizer(const Tokenizer& tokenizer, const nn::ModelConfig& config,
                     CarriedFiles& carried) {
  const auto same = carried.find(tokenizer.file_name());
  if (same != carried.end() && same->second == tokenizer.file_content()) return true;
  bool held_another = false;
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt"}) {
    held_another |= carried.erase(name) > 0;
  }
  for (auto& [name, content] : new_carried(tokenizer, config)) carried.emplace(name, content);
  return !held_another;
}

CarriedFiles new_carried(const Tokenizer& tokenizer, const nn::ModelConfig& config) {
  ordered_json tokenizer_config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"model_max_length", config.max_positions},
                                   {"clean_up_tokenization_spaces", false}};
  if (tokenizer.file_name() == "tokenizer.model") {
    tokenizer_config["tokenizer_class"] = "LlamaTokenizer";
    // transformers 5 adds it before a text only when told to.
    const std::vector<std::int32_t> before = tokenizer.encode("", {.add_special = true});
    tokenizer_config["add_bos_token"] = !before.empty();
    if (!before.empty()) tokenizer_config["bos_token"] = tokenizer.token_bytes(before.front());
  }
  ordered_json generation_config = {{"_from_model_config", true}};
  if (const auto end = tokenizer.end_of_text()) {
    tokenizer_config["eos_token"] = tokenizer.token_bytes(*end);
  }
  if (config.eos_token >= 0) generation_config["eos_token_id"] = config.eos_token;
  return {{tokenizer.file_name(), tokenizer.file_content()},
          {"tokenizer_config.json", tokenizer_config.dump(2) + "\n"},
          {"generation_config.json", generation_config.dump(2) + "\n"}};
}

}  // namespace atl::train
