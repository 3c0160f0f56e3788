#include "atoll/model_dir/model_source.h"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_hold.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/hub/model.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/held_model.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/multimodal.h"
#include "atoll/text/tokenizer_config.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

bool holds_tokenizer(const fs::path& directory) {
  return path_exists(directory / "tokenizer.json") || path_exists(directory / "tokenizer.model");
}

[[noreturn]] void refuse_file(const fs::path& file) {
  const std::string extension = file.extension().string();
  std::string remedy = "give the directory that has config.json and the weights in it";
  if (extension == ".gguf") {
    remedy = fmt::format("turn it into one: atoll import {} --out {}", file.string(),
                         file.stem().string());
  } else if (extension == ".toml") {
    remedy = "give the run.dir of that recipe";
  } else if (extension == ".txt" || extension == ".jsonl") {
    remedy = "give that first, and a text with --text (eval) or --prompt-file (generate)";
  } else if (extension == ".safetensors") {
    const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
    remedy = fmt::format("give the one it is in: {}", parent.string());
  }
  throw user_error("{} is a file, and a model is a directory; {}", file.string(), remedy);
}

// Each of a run's islands has a model, and those differ until the run is finished: which of them is
// meant must be said.
[[noreturn]] void refuse_islands(const fs::path& islands) {
  std::vector<std::pair<std::int64_t, std::string>> found;  // newest step, directory
  for (const fs::directory_entry& island : fs::directory_iterator(islands)) {
    if (!fs::is_directory(island.path() / "checkpoints")) continue;
    const std::vector<std::int64_t> steps = ckpt::checkpoint_steps(island.path() / "checkpoints");
    if (!steps.empty()) {
      found.emplace_back(*std::max_element(steps.begin(), steps.end()), island.path().string());
    }
  }
  if (found.empty()) {
    throw user_error("{} is a run of islands, and none of them has a checkpoint yet",
                     islands.parent_path().string());
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(b.first, a.second) < std::tie(a.first, b.second);
  });
  constexpr std::size_t kShown = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(found.size(), kShown); ++i) {
    list += fmt::format("{}{} (step {})", i > 0 ? ", " : "", found[i].second, found[i].first);
  }
  if (found.size() > kShown) list += fmt::format(" and {} more", found.size() - kShown);
  throw user_error("{} is a run of islands, each of which has its own checkpoints; give one of {}",
                   islands.parent_path().string(), list);
}

bool is_run_without_checkpoint(const fs::path& directory) {
  const fs::path checkpoints = directory / "checkpoints";
  if (path_exists(checkpoints)) return ckpt::checkpoint_steps(checkpoints).empty();
  return path_exists(directory / "settings.toml") || path_exists(directory / "metrics.jsonl");
}

}  // namespace

ModelPath find_model(const fs::path& argument, const fs::path& base) {
  return hold_model(argument, base).path;
}

namespace {

HeldModel hold_directory(const fs::path& given) {
  const fs::path argument = hub::local_model(given);
  if (!path_exists(argument)) {
    throw user_error("there is no directory {}{}", argument.string(), advice_for_absent(argument));
  }
  if (!directory_exists(argument)) refuse_file(argument);
  if (path_exists(argument / "config.json") || holds_adapter(argument)) {
    if (!path_exists(argument / "manifest.json")) return {argument, nullptr};
    std::shared_ptr<DirectoryHold> hold = ckpt::hold_checkpoint(argument);
    ckpt::verify_checkpoint(argument);
    return {argument, std::move(hold)};
  }
  if (directory_exists(argument / "checkpoints")) {
    if (auto newest = ckpt::hold_newest(argument / "checkpoints")) {
      return {newest->info.path, std::move(newest->hold)};
    }
  }
  if (fs::is_directory(argument / "islands")) refuse_islands(argument / "islands");
  if (is_run_without_checkpoint(argument)) {
    throw user_error(
        "{} is a run without a checkpoint yet: one is written every checkpoint.every steps, at the "
        "run's end, and when Ctrl-C or SIGTERM stops it",
        argument.string());
  }
  throw user_error(
      "{} is neither a model directory (it has no config.json) nor a run with a checkpoint (it has "
      "no checkpoints/step-*){}",
      argument.string(), advice_for_parent(argument));
}

}  // namespace

HeldModel hold_model(const fs::path& argument, const fs::path& base) {
  HeldModel model = hold_directory(argument);
  if (base.empty()) return model;
  if (!holds_adapter(model.path)) {
    throw user_error("{} is a whole model, and a base model is for adapters; leave {} out",
                     model.path.string(), base.string());
  }
  HeldModel held = hold_directory(base);
  if (holds_adapter(held.path)) {
    throw user_error("the base model {} is an adapter itself; merge that one first",
                     held.path.string());
  }
  return {ModelPath(model.path.directory(), held.path.directory()), std::move(model.hold),
          std::move(held.hold)};
}

std::string advice_for_parent(const fs::path& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entries(directory, error);
       !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    std::error_code ignored;
    if (path.extension() == ".gguf") found.push_back(path.string());
    for (const char* part : {"checkpoints", "islands", "config.json", "manifest.json"}) {
      if (!fs::exists(path / part, ignored)) continue;
      found.push_back(path.string());
      break;
    }
  }
  if (found.empty()) return "";
  std::sort(found.begin(), found.end());
  constexpr std::size_t kShown = 4;
  const std::size_t more = found.size() - std::min(found.size(), kShown);
  found.resize(found.size() - more);
  return fmt::format("; in it there is {}{}", fmt::join(found, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

namespace {

constexpr const char* kBaseRemedy =
    "name the base model's directory with --base (generate, eval, export) or model.base (train)";

// The base that an adapter names, which may be a model of the hub.
fs::path named_base(const fs::path& file, const std::string& base) {
  try {
    return hub::local_model(base);
  } catch (const Error& error) {
    throw make_error(error.kind(), "{}: \"base_model_name_or_path\": {}; or {}", file.string(),
                     error.what(), kBaseRemedy);
  }
}

}  // namespace

fs::path base_directory(const ModelPath& model) {
  const fs::path& directory = model;
  if (!holds_adapter(directory)) return directory;
  if (!model.base().empty()) return model.base();
  const fs::path path = directory / kAdapterConfigFile;
  const AdapterConfig config = parse_adapter_config(read_file(path), path.string());
  const fs::path base = named_base(path, config.base);
  if (path_exists(base / "config.json")) {
    if (holds_adapter(base)) {
      throw user_error("{}: the base model {} is an adapter itself; merge that one first",
                       path.string(), base.string());
    }
    return base;
  }
  // Whoever edits a checkpoint damages it.
  const bool is_checkpoint = path_exists(directory / "manifest.json");
  throw user_error(
      "{}: \"base_model_name_or_path\" is \"{}\", and there is no model directory of that name{}; "
      "{}",
      path.string(), config.base, advice_for_absent(base),
      is_checkpoint ? std::string(kBaseRemedy) + ", or put it back there"
                    : std::string(kBaseRemedy) + ", or write its path there");
}

namespace {

// What a person put into a model directory is theirs to mend, unless atoll wrote it.
template <typename Read>
auto read_given(const fs::path& directory, Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDamaged || path_exists(directory / "manifest.json")) throw;
    throw Error(ErrorKind::kUser, error.what());
  }
}

// config.json, or of a multimodal model that of its language model; whether the head of that is
// tied, its tensors may have to say.
std::string read_config_json(const fs::path& directory) {
  const fs::path path = directory / "config.json";
  std::string text = read_file(path);
  const auto part = nn::language_part(text, path.string());
  if (!part) return text;
  return part->says_tied_head ? part->config_json : ckpt::HfDirectory(directory).config_json();
}

}  // namespace

nn::ModelConfig read_model_config(const ModelPath& directory) {
  const fs::path base = base_directory(directory);
  const fs::path path = base / "config.json";
  nn::ModelConfig config =
      read_given(base, [&] { return nn::parse_config(read_config_json(base), path.string()); });
  if (!holds_adapter(directory)) return config;
  return read_given(directory, [&] { return adapted_config(std::move(config), directory); });
}

fs::path tokenizer_directory(const ModelPath& directory) {
  return holds_tokenizer(directory) ? directory.directory() : base_directory(directory);
}

Tokenizer load_tokenizer(const ModelPath& directory) {
  const fs::path at = tokenizer_directory(directory);
  return read_given(at, [&] { return Tokenizer::load(at); });
}

std::vector<std::int32_t> stop_tokens(const ModelPath& directory, const Tokenizer& tokenizer) {
  const std::int64_t vocab_size = read_model_config(directory).vocab_size;
  for (const char* name : {"generation_config.json", "config.json"}) {
    fs::path path = directory.directory() / name;
    if (!path_exists(path)) path = base_directory(directory) / name;
    std::set<std::int32_t> tokens;
    for (const std::int64_t id : text::read_eos_ids(path)) {
      if (id < vocab_size) {
        tokens.insert(static_cast<std::int32_t>(id));
        continue;
      }
      log::warning("{}: \"eos_token_id\" has {}, which is none of the model's {}: it ends nothing",
                   path.string(), id, counted(vocab_size, "token"));
    }
    if (!tokens.empty()) return {tokens.begin(), tokens.end()};
  }
  if (const auto end = tokenizer.end_of_text()) return {*end};
  return {};
}

}  // namespace atl::model_dir
