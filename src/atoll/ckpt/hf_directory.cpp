#include "atoll/ckpt/hf_directory.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::ckpt {

namespace {

namespace fs = std::filesystem;

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

// tensor -> file, as the index has it.
std::map<std::string, std::string> parse_index(const fs::path& path) {
  using Json = nlohmann::json;
  std::map<std::string, std::string> weight_map;
  try {
    weight_map = Json::parse(read_file(path)).at("weight_map").get<decltype(weight_map)>();
  } catch (const Json::exception& error) {
    throw damaged_error("{} is not an index of safetensors: {}", path.string(), error.what());
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
  if (!fs::is_directory(path_)) {
    throw user_error("there is no model directory {}", path_.string());
  }
  if (!has_file("config.json")) throw missing(path_, "config.json");
  config_json_ = read_text("config.json");
  if (has_file(kIndex)) {
    open_sharded();
  } else if (has_file(kSingle)) {
    open_single();
  } else if (has_file("pytorch_model.bin")) {
    throw user_error(
        "{} has its weights in pytorch_model.bin only; save them as safetensors with transformers: "
        "model.save_pretrained(directory, safe_serialization=True)",
        path_.string());
  } else {
    throw missing(path_, kSingle);
  }
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
      if (listed == weight_map.end() || listed->second != file.path().filename()) {
        throw damaged_error("{} has tensor \"{}\", but {} does not say so", file.path().string(),
                            entry.name, kIndex);
      }
    }
  }
}

bool HfDirectory::has_file(std::string_view name) const {
  return fs::is_regular_file(path_ / name);
}

std::string HfDirectory::read_text(std::string_view name) const {
  return read_file(path_ / name);
}

std::vector<std::string> HfDirectory::tensor_names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : index_) names.push_back(name);
  return names;
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
