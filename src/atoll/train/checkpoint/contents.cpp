#include "atoll/train/checkpoint/contents.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/hash.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/hf/weights.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/quantised/quantised.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/nn/adapters/lora_whole.h"
#include "atoll/parallel/layout/gather_stages.h"
#include "atoll/parallel/state/assemble.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

// The config.json of a checkpoint: its dtype is that of the tensors beside it, or readers would
// narrow them. An adapter's says what the base model's does.
std::string config_of(TrainState& state) {
  std::string config = nn::config_json(state.model().config);
  if (state.options().lora) return config;
  return ckpt::with_dtype(config, state.options().build.dtype, "config.json");
}

// As many as ranks wrote the checkpoint.
std::vector<fs::path> optimizer_files(const ckpt::CheckpointInfo& checkpoint) {
  std::vector<fs::path> paths;
  for (const ckpt::ManifestFile& file : checkpoint.files) {
    const bool is_state = file.name.starts_with("optimizer") && file.name.ends_with(".safetensors");
    if (is_state) paths.push_back(checkpoint.path / file.name);
  }
  if (!paths.empty()) return paths;
  throw user_error("{} has no optimizer state; start from its weights alone with model.from",
                   checkpoint.path.string());
}

// JSON has no infinity: a lowest loss that is not there yet is left out.
ordered_json to_json(const HeldOutHistory& history) {
  ordered_json json = {{"last_step", history.last_step}, {"since_lowest", history.since_lowest}};
  if (std::isfinite(history.lowest)) json["lowest"] = history.lowest;
  json["best"] = ordered_json::array();
  for (const HeldOutHistory::Best& one : history.best) {
    json["best"].push_back({{"step", one.step}, {"loss", one.loss}});
  }
  return json;
}

HeldOutHistory held_out_from(const ordered_json& json) {
  HeldOutHistory history;
  history.last_step = whole_number(json.at("last_step"));
  history.since_lowest = whole_number(json.at("since_lowest"));
  if (json.contains("lowest")) history.lowest = json.at("lowest").get<double>();
  for (const ordered_json& one : json.at("best")) {
    if (std::ssize(history.best) == HeldOutHistory::kMost) break;
    history.best.push_back({whole_number(one.at("step")), one.at("loss").get<double>()});
  }
  return history;
}

std::string to_json(const Position& position) {
  ordered_json json = {{"format", "atoll trainer state"},
                       {"version", 1},
                       {"step", position.step},
                       {"tokens", position.tokens},
                       {"corpus_hash", position.corpus_hash},
                       {"line_steps", position.line_steps},
                       {"line_loss", position.line_loss}};
  if (position.without_loss > 0) json["without_loss"] = position.without_loss;
  if (position.line_pairs.num_pairs > 0) json["line_pairs"] = position.line_pairs.numbers();
  if (!position.reference_hash.empty()) json["reference_hash"] = position.reference_hash;
  if (!position.base_hash.empty()) json["base_hash"] = position.base_hash;
  if (!position.bf16.empty()) json["bf16"] = position.bf16;
  if (!position.gpu.empty()) json["gpu"] = position.gpu;
  if (const ResidualState& residual = position.residual; residual != ResidualState()) {
    json["owed"] = {{"codec", residual.codec},
                    {"ranks", residual.ranks},
                    {"frozen_at", residual.second_updates},
                    {"steps", residual.steps}};
  }
  if (position.held_out.last_step >= 0) json["held_out"] = to_json(position.held_out);
  json["settings"] = ordered_json::object();
  for (const auto& [key, value] : position.settings) json["settings"][key] = value;
  return json.dump(2) + "\n";
}

Position parse_position(const std::string& text, const std::string& origin) {
  try {
    const ordered_json json = parse_ordered_json(text, origin);
    if (json.at("version") != 1) {
      throw user_error("{} is of version {}, and this atoll reads version 1", origin,
                       json.at("version").dump());
    }
    Position position;
    position.step = whole_number(json.at("step"));
    position.tokens = whole_number(json.at("tokens"));
    position.corpus_hash = json.at("corpus_hash").get<std::string>();
    if (json.contains("without_loss")) {
      position.without_loss = whole_number(json.at("without_loss"));
    }
    position.base_hash = json.value("base_hash", "");
    position.bf16 = json.value("bf16", "");
    position.gpu = json.value("gpu", "");
    position.line_steps = whole_number(json.at("line_steps"));
    position.line_loss = json.at("line_loss").get<double>();
    if (json.contains("line_pairs")) {
      position.line_pairs =
          nn::PreferenceSums::of(json.at("line_pairs").get<nn::PreferenceSums::Numbers>());
    }
    position.reference_hash = json.value("reference_hash", "");
    if (json.contains("owed")) {
      const ordered_json& residual = json.at("owed");
      position.residual = {
          residual.at("codec").get<std::string>(), whole_number<int>(residual.at("ranks")),
          whole_number(residual.at("frozen_at")), residual.value("steps", std::int64_t{1})};
    }
    if (json.contains("held_out")) position.held_out = held_out_from(json.at("held_out"));
    for (const auto& [key, value] : json.at("settings").items()) {
      position.settings.emplace_back(key, value.get<std::string>());
    }
    return position;
  } catch (const ordered_json::exception& error) {
    throw damaged_error("{} is not a trainer state: {}", origin, json_reason(error));
  }
}

}  // namespace

namespace {

CheckpointSave::Options save_options(const fs::path& root, TrainState& state,
                                     const Position& position, const CarriedFiles& carried,
                                     const fs::path& base, CheckpointSave::Mode mode,
                                     ExtraPart extra) {
  CheckpointSave::Options options = {.root = root, .step = position.step, .mode = mode};
  options.texts.emplace_back("config.json", config_of(state));
  options.texts.insert(options.texts.end(), carried.begin(), carried.end());
  if (const auto& lora = state.options().lora) {
    const model_dir::AdapterConfig config = {.lora = *lora,
                                             .base = fs::absolute(base).string(),
                                             .keeps_tied = nn::saves_tied_embedding(state.model())};
    options.texts.emplace_back(model_dir::kAdapterConfigFile,
                               model_dir::adapter_config_json(config, state.model().config));
    options.adapter_file = model_dir::kAdapterWeightsFile;
  }
  Position with_residual = position;
  with_residual.residual = residual_state(state);
  options.texts.emplace_back("trainer.json", to_json(with_residual));
  // Islands, which have an extra part of their own, do not compress what their ranks send.
  const bool is_lead = state.all_ranks() == nullptr || state.all_ranks()->rank() == 0;
  if (extra.file.empty() && is_lead) {
    ExtraPart factors = factors_part(state);
    extra.file = std::move(factors.file);
    extra.sources = std::move(factors.sources);
  }
  for (auto& text : extra.texts) options.texts.push_back(std::move(text));
  options.extra = std::move(extra);
  return options;
}

}  // namespace

std::unique_ptr<CheckpointSave> begin_save(const fs::path& root, TrainState& state,
                                           const Position& position, const CarriedFiles& carried,
                                           const fs::path& base, CheckpointSave::Mode mode,
                                           ExtraPart extra) {
  return std::make_unique<CheckpointSave>(
      state, save_options(root, state, position, carried, base, mode, std::move(extra)));
}

fs::path save_pieces(const fs::path& root, TrainState& state, const Position& position,
                     const CarriedFiles& carried, const fs::path& base,
                     std::vector<optim::StateTensor> pieces, comm::Group& group) {
  const CheckpointSave::Options options =
      save_options(root, state, position, carried, base, CheckpointSave::Mode::kNow, {});
  return CheckpointSave(state.whole_layout(), std::move(pieces), group, options).commit();
}

fs::path save_checkpoint(const fs::path& root, TrainState& state, const Position& position,
                         const CarriedFiles& carried, const fs::path& base) {
  return begin_save(root, state, position, carried, base, CheckpointSave::Mode::kNow)->commit();
}

Position read_position(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "trainer.json";
  return parse_position(read_file(path), path.string());
}

Position load_checkpoint(const ckpt::CheckpointInfo& checkpoint, TrainState& state,
                         ThreadPool& threads) {
  const fs::path& path = checkpoint.path;
  const std::string config = read_file(path / "config.json");
  if (config != config_of(state)) {
    throw user_error(
        "the checkpoint {} is of another model than the settings describe; give back the model.* "
        "settings it was made with, or choose another run.dir",
        path.string());
  }
  Position position = read_position(path);
  check_residual(position.residual, state, path);
  if (state.options().lora) {
    model_dir::load_adapter(path, state.store(), threads);
  } else {
    model_dir::load_parameters(path, state.model(), state.store(), threads);
  }
  const ckpt::SafetensorsSet optimizer(optimizer_files(checkpoint));
  load_state_vectors(optimizer, position.residual, position.step, state, threads);
  load_factors(checkpoint, position.residual, state);
  return position;
}

std::string hash_of_frozen(TrainState& state) {
  if (state.store().frozen().empty()) return "";
  Hasher hasher;
  const auto add = [&](const Tensor& value) {
    const HostRead read(value);
    hasher.update(read.bytes().data(), read.bytes().size());
  };
  comm::Group* parts = state.parts_group();
  const std::span<nn::Param* const> frozen = state.store().frozen();
  std::optional<parallel::Assembled> assembled;
  // Whole, on the first of the ranks that have parts of it; undefined on the others.
  const auto whole = [&](std::size_t i) {
    if (frozen[i]->is_packed()) return frozen[i]->packed.bytes;
    if (parts == nullptr) return frozen[i]->value;
    const parallel::WholeTensor part = {"", frozen[i], frozen[i]->value};
    assembled.emplace(std::span(&part, 1), *parts, [](const parallel::WholeTensor&) { return 0; });
    return assembled->tensors().empty() ? Tensor() : assembled->tensors().front().tensor;
  };
  const bool is_first = parts == nullptr || parts->rank() == 0;
  if (parallel::PipelinePart* pipeline = state.pipeline()) {
    parallel::StageValues values = {whole, {}};
    if (is_first) values.take = [&](const nn::Param&, const Tensor& value) { add(value); };
    parallel::gather_stages(state.whole_layout().frozen(), frozen, pipeline->group(), values);
  } else {
    for (std::size_t i = 0; i < frozen.size(); ++i) {
      const Tensor value = whole(i);
      if (is_first) add(value);
    }
  }
  Hash128 digest = hasher.digest();
  const Tensor words = {&digest, {Dtype::kI64, {2}}};
  if (state.pipeline() != nullptr && is_first) state.pipeline()->group().broadcast(words, 0);
  if (parts != nullptr) parts->broadcast(words, 0);
  return to_hex(digest);
}

CarriedFiles read_carried(const fs::path& directory) {
  CarriedFiles carried;
  for (const char* name : ckpt::carried_file_names()) {
    if (path_exists(directory / name)) carried[name] = read_file(directory / name, kMaxListBytes);
  }
  // What the files kept narrow, an export gives back as narrow.
  if (path_exists(directory / "config.json") && !model_dir::holds_adapter(directory)) {
    const ckpt::FileDtypes dtypes = ckpt::widened_dtypes(ckpt::HfDirectory(directory));
    carried[ckpt::kSourceDtypesFile] = ckpt::HfDirectory::dtypes_json(dtypes);
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
    const auto& before = tokenizer.tokens_before();
    tokenizer_config["add_bos_token"] = !before.empty();
    tokenizer_config["add_eos_token"] = !tokenizer.tokens_after().empty();
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
