#include "atoll/tune/lease/inputs.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/unfinished.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTaskKey = "task.file";
// The settings whose values are paths that a run reads.
constexpr const char* kKeys[] = {"data.text",          "data.shards", "data.tokenizer",
                                 "data.chat_template", "model.from",  "model.config"};

std::vector<std::string> paths_of(const Setting& setting) {
  const SettingValue value = setting.value();
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return *list;
  const auto* path = std::get_if<std::string>(&value);
  if (path == nullptr || path->empty()) return {};
  return {*path};
}

LocalInput input_at(const std::string& key, const std::string& path) {
  if (!path_exists(path)) {
    throw user_error("{} is {}, which is not there", key, path);
  }
  const fs::path real = real_path(path);
  LocalInput found = {.input = {.key = key, .name = real.filename().string()}, .root = real};
  found.input.is_directory = directory_exists(real);
  if (found.input.is_directory) {
    found.input.files = list_files(real, [](std::string_view) { return true; });
  } else {
    found.root = real.parent_path();
    const std::string& name = found.input.name;
    // The other files in its directory are not inputs.
    found.input.files = {entry_of(found.root, name)};
  }
  return found;
}

}  // namespace

std::vector<LocalInput> inputs_of(const Study& study) {
  std::vector<LocalInput> all;
  for (const char* key : kKeys) {
    if (study.space().find(key) >= 0) {
      throw user_error(
          "study.listen is set, and space.{} chooses between paths of this machine, which workers "
          "on others do not have; leave one of the two out",
          key);
    }
    for (const std::string& path : paths_of(study.recipe().settings().find(key))) {
      all.push_back(input_at(key, path));
    }
  }
  if (!study.settings().task.empty()) all.push_back(input_at(kTaskKey, study.settings().task));
  return all;
}

fs::path input_root(const fs::path& dir, std::size_t index, const Input& input) {
  const fs::path root = dir / "inputs" / std::to_string(index);
  return input.is_directory ? root / input.name : root;
}

std::vector<std::string> input_overrides(const fs::path& dir, const std::vector<Input>& inputs) {
  std::vector<std::string> overrides;
  for (const char* key : kKeys) {
    nlohmann::json paths = nlohmann::json::array();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].key != key) continue;
      paths.push_back((dir / "inputs" / std::to_string(i) / inputs[i].name).string());
    }
    if (paths.empty()) continue;
    const bool is_list =
        std::string_view(key) == "data.text" || std::string_view(key) == "data.shards";
    overrides.push_back(
        fmt::format("--{}={}", key, is_list ? paths.dump() : paths.front().get<std::string>()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].key != kTaskKey) continue;
    overrides.push_back(fmt::format(
        "--{}={}", kTaskKey, (dir / "inputs" / std::to_string(i) / inputs[i].name).string()));
  }
  return overrides;
}

bool travels(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (name == "lock" || name.starts_with('.') || finished_name(name)) return false;
  if (path.starts_with('.') || path.find("/.") != std::string_view::npos) return false;
  // run/data and run-00000010/data
  const std::size_t first = path.find('/');
  return first == std::string_view::npos || !path.substr(first + 1).starts_with("data/");
}

}  // namespace atl::tune
