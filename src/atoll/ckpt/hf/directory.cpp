#include "atoll/ckpt/hf/directory.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/nn/models/multimodal.h"

namespace atl::ckpt {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

Error missing(const fs::path& directory, std::string_view what) {
  return user_error(
      "{} is not a model directory: it has no {}; one needs config.json and model.safetensors (or "
      "model.safetensors.index.json with its shards), and tokenizer.json to read text",
      directory.string(), what);
}

// A shard's name comes from a file of a stranger: it must not lead out of the directory.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
         name.find("..") == std::string::npos;
}

// Nor may the name be a link that does. Within Hugging Face's download cache every file is one:
// models--x/snapshots/<commit>/file -> models--x/blobs/<hash>.
bool leads_out(const fs::path& directory, const std::string& file) {
  const fs::path home = real_path(directory);
  const fs::path target = real_path(directory / file);
  if (target.parent_path() == home) return false;
  return home.parent_path().filename() != "snapshots" ||
         target.parent_path() != home.parent_path().parent_path() / "blobs";
}

Json parse_flat(const std::string& text, const fs::path& path) {
  return parse_json(text, path.string(), {.max_depth = 8});
}

// tensor -> file, as the index has it.
std::map<std::string, std::string> parse_index(const fs::path& path) {
  std::map<std::string, std::string> weight_map;
  try {
    weight_map = parse_flat(read_file(path, kMaxListBytes), path)
                     .at("weight_map")
                     .get<decltype(weight_map)>();
  } catch (const Json::exception& error) {
    throw damaged_error("{} is not an index of safetensors: {}", path.string(), json_reason(error));
  }
  for (const auto& [tensor, file] : weight_map) {
    if (!is_plain_file_name(file)) {
      throw damaged_error(
          "{}: tensor \"{}\" is said to be in \"{}\", which is not a file beside it", path.string(),
          tensor, file);
    }
  }
  return weight_map;
}

}  // namespace

HfDirectory::HfDirectory(const fs::path& directory) : path_(directory) {
  if (!directory_exists(path_)) {
    throw user_error("there is no model directory {}", path_.string());
  }
  if (!has_file("config.json")) throw missing(path_, "config.json");
  config_json_ = read_file(path_ / "config.json", kMaxFileBytes);
  if (has_file(kSingle)) {  // before an index, as transformers looks for them
    open_single();
  } else if (has_file(kIndex)) {
    open_sharded();
  } else if (has_file("pytorch_model.bin")) {
    throw user_error(
        "{} has its weights in pytorch_model.bin only; save them as safetensors with transformers: "
        "model.save_pretrained(directory, safe_serialization=True)",
        path_.string());
  } else {
    throw missing(path_, kSingle);
  }
  take_language_part();
}

void HfDirectory::take_language_part() {
  const auto part = nn::language_part(config_json_, (path_ / "config.json").string());
  if (!part) return;
  is_language_part_ = true;
  index_.clear();
  bool has_head = false;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    files_[i].rename(nn::language_tensor);
    for (const SafetensorsEntry& entry : files_[i].entries()) {
      index_[entry.name] = i;
      has_head = has_head || entry.name.starts_with("lm_head.");
    }
  }
  config_json_ =
      part->says_tied_head ? part->config_json : nn::with_tied_head(part->config_json, !has_head);
}

void HfDirectory::open_single() {
  files_.emplace_back(path_ / kSingle);
  for (const SafetensorsEntry& entry : files_.back().entries()) index_[entry.name] = 0;
}

void HfDirectory::open_sharded() {
  const std::map<std::string, std::string> weight_map = parse_index(path_ / kIndex);
  std::map<std::string, std::size_t> numbers;
  for (const auto& [tensor, file] : weight_map) {
    if (!numbers.contains(file)) {
      if (!has_file(file)) throw missing(path_, file);
      if (leads_out(path_, file)) {
        throw damaged_error(
            "{}: tensor \"{}\" is said to be in \"{}\", a link out of the directory; give the "
            "directory that it leads to, or copy the file",
            (path_ / kIndex).string(), tensor, file);
      }
      numbers[file] = files_.size();
      files_.emplace_back(path_ / file);
    }
    index_[tensor] = numbers[file];
    if (!files_[numbers[file]].contains(tensor)) {
      throw damaged_error("{} lists tensor \"{}\", but {} does not have it",
                          (path_ / kIndex).string(), tensor, file);
    }
  }
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto listed = weight_map.find(entry.name);
      if (listed != weight_map.end() && listed->second != file.path().filename()) {
        throw damaged_error("{} has tensor \"{}\", which {} says is in \"{}\"",
                            file.path().string(), entry.name, kIndex, listed->second);
      }
      if (listed == weight_map.end()) {
        throw damaged_error("{} has tensor \"{}\", but {} does not say so", file.path().string(),
                            entry.name, kIndex);
      }
    }
  }
}

bool HfDirectory::has_file(std::string_view name) const {
  return path_exists(path_ / name);  // what is no file is refused by name once it is read
}

std::string HfDirectory::read_text(std::string_view name) const {
  return read_file(path_ / name, kMaxListBytes);
}

std::vector<std::string> HfDirectory::tensor_names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : index_) names.push_back(name);
  return names;
}

FileDtypes HfDirectory::source_dtypes() const {
  FileDtypes dtypes;
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.entries()) {
      const std::optional<Dtype> dtype = dtype_from_safetensors(entry.dtype);
      if (dtype && converts_to_f32(*dtype)) dtypes[entry.name] = *dtype;
    }
  }
  if (!has_file(kSourceDtypesFile)) return dtypes;
  const std::string path = (path_ / kSourceDtypesFile).string();
  try {
    const Json stated = parse_flat(read_text(kSourceDtypesFile), path);
    const auto otherwise = stated.at("*").get<std::string>();
    for (auto& [name, dtype] : dtypes) {
      // A base model's tensors have names without the first part; the checkpoint's have it.
      const std::string key = stated.contains(name) ? name : name.substr(name.find('.') + 1);
      const auto text = stated.value(key, otherwise);
      const std::optional<Dtype> found = dtype_from_safetensors(text);
      if (!found || !converts_to_f32(*found)) {
        throw damaged_error("{}: tensor \"{}\": \"{}\" is not a float dtype", path, name, text);
      }
      dtype = *found;
    }
  } catch (const Json::exception& error) {
    throw damaged_error("{} does not give tensors' dtypes: {}", path, json_reason(error));
  }
  return dtypes;
}

std::string HfDirectory::dtypes_json(const FileDtypes& dtypes) {
  std::map<Dtype, std::size_t> counts;
  for (const auto& [name, dtype] : dtypes) ++counts[dtype];
  Dtype most = Dtype::kF32;
  for (const auto& [dtype, count] : counts) {
    if (count > counts[most]) most = dtype;
  }
  Json json = {{"*", safetensors_name(most)}};
  for (const auto& [name, dtype] : dtypes) {
    if (dtype != most) json[name] = safetensors_name(dtype);
  }
  return json.dump(2) + "\n";
}

std::span<const char* const> carried_file_names() {
  static constexpr const char* kNames[] = {
      "tokenizer.json",
      "tokenizer.model",
      "tokenizer_config.json",
      "special_tokens_map.json",
      "added_tokens.json",
      "vocab.json",
      "merges.txt",
      "chat_template.jinja",
      "generation_config.json",
  };
  return kNames;
}

const SafetensorsFile& HfDirectory::file_of(std::string_view tensor) const {
  const auto found = index_.find(tensor);
  if (found == index_.end()) {
    throw user_error("{} has no tensor \"{}\" among its {}; does its config.json describe it?",
                     path_.string(), tensor, index_.size());
  }
  return files_[found->second];
}

}  // namespace atl::ckpt
