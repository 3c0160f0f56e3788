#include "atoll/cli/recipe.h"

namespace atl::cli {

Recipe::Recipe(const std::filesystem::path& path, const std::vector<std::string>& overrides)
    : settings_(train::make_settings(config_)) {
  if (!path.empty()) settings_.load_toml(path);
  for (const std::string& argument : overrides) settings_.override(argument);
  train::validate(config_, settings_);
}

train::TrainConfig load_recipe(const std::filesystem::path& path,
                               const std::vector<std::string>& overrides) {
  return Recipe(path, overrides).config();
}

}  // namespace atl::cli
