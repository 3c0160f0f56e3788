#include "atoll/train/config/recipe.h"

#include <algorithm>
#include <cctype>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// Says what was given in place of a recipe, where that can be told by its name.
void refuse_other_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    const std::string setting = as_setting(path.string());
    if (setting.empty()) return;
    throw user_error("{}: settings are written {}", path.string(), setting);
  }
  if (fs::is_directory(path, ignored)) {
    const bool is_run = fs::exists(path / "checkpoints", ignored);
    throw user_error("{} is a directory, and a recipe is a TOML file; {}", path.string(),
                     is_run ? "a run goes on with the recipe that it was started with"
                            : "to start from a model give --model.from, from text --data.text");
  }
  const std::string extension = path.extension().string();
  const auto is = [&](std::initializer_list<const char*> some) {
    return std::find(some.begin(), some.end(), extension) != some.end();
  };
  if (is({".yaml", ".yml", ".json", ".py", ".cfg", ".ini"})) {
    throw user_error(
        "{} is no TOML file, which a recipe is: lines `key = value` below a line `[group]`; "
        "recipes/kjv-demo.toml is one, and `atoll config-reference` lists the keys",
        path.string());
  }
  if (is({".txt", ".jsonl", ".bin", ".md", ".gz", ".zst", ".xz", ".bz2", ".lz4", ".parquet",
          ".arrow", ".csv", ".tsv", ".tar"})) {
    throw user_error("{} is no recipe, which is a TOML file; to train on it give --data.text={}",
                     path.string(), path.string());
  }
  if (is({".gguf", ".safetensors", ".pt", ".pth", ".ckpt"})) {
    throw user_error(
        "{} is no recipe, which is a TOML file; to start from a model give --model.from",
        path.string());
  }
}

// A study is a TOML file, too.
void refuse_study(const fs::path& path, const std::vector<TomlEntry>& entries) {
  const auto is_of_study = [](const TomlEntry& entry) {
    return entry.key.starts_with("study.") || entry.key.starts_with("space.");
  };
  if (std::none_of(entries.begin(), entries.end(), is_of_study)) return;
  const auto recipe = std::find_if(entries.begin(), entries.end(), [](const TomlEntry& entry) {
    return entry.key == "study.recipe";
  });
  const auto* name = recipe == entries.end() ? nullptr : std::get_if<std::string>(&recipe->value);
  throw user_error("{} is a study and no recipe: `atoll tune {}` runs it{}", path.string(),
                   path.string(),
                   name == nullptr ? "" : fmt::format("; the recipe that it tunes is {}", *name));
}

}  // namespace

Recipe::Recipe(const std::filesystem::path& path, const std::vector<std::string>& overrides)
    : settings_(train::make_settings(config_)) {
  if (!path.empty()) {
    refuse_other_files(path);
    const std::vector<TomlEntry> entries = parse_toml(read_text_file(path), path.string());
    refuse_study(path, entries);
    for (const TomlEntry& entry : entries) settings_.take(entry, path.string());
  }
  for (const std::string& argument : overrides) settings_.override(argument);
  train::validate(config_, settings_);
}

void Recipe::settle(const std::string& key, const std::string& value) {
  settings_.load_toml_text(fmt::format("{} = {}", key, value), "the data");
  train::validate(config_, settings_);
}

std::string as_setting(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const std::string name = argument.substr(0, equals);
  if (equals == argument.npos || name.empty()) return "";
  const bool is_plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
  if (!is_plain) return "";
  train::TrainConfig config;
  const Settings settings = train::make_settings(config);
  const Settings::Elsewhere meant = settings.meant_by(name, argument.substr(equals + 1));
  const std::string key = settings.nearest(name);
  if (key.empty()) return "";
  return fmt::format("--{}={}", key,
                     meant.value.empty() ? argument.substr(equals + 1) : meant.value);
}

train::TrainConfig load_recipe(const std::filesystem::path& path,
                               const std::vector<std::string>& overrides) {
  return Recipe(path, overrides).config();
}

}  // namespace atl::train
