#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/train/config/config.h"

namespace atl::train {

/// A run's settings as a command is given them: a recipe, and what the command line changes in it.
/// Stays where it is, because its Settings point into its TrainConfig.
class Recipe {
 public:
  /// Reads `path` (empty: no recipe, only defaults), then applies `overrides`
  /// ("--train.lr=3e-4"), then checks everything. Throws Error(kUser) naming the place of a
  /// mistake.
  Recipe(const std::filesystem::path& path, const std::vector<std::string>& overrides);
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  const train::TrainConfig& config() const { return config_; }
  /// Where each value came from; describe() and to_toml() write them out.
  const Settings& settings() const { return settings_; }
  /// Sets what is known only when the data is there, `value` as TOML ("train.steps", "512"), and
  /// checks everything again. Throws as the constructor.
  void settle(const std::string& key, const std::string& value);

 private:
  train::TrainConfig config_;
  Settings settings_;
};

/// "--train.steps=5" for "train.steps=5", or for "steps=5": how a setting is written that stands
/// where a path does. Empty when an argument is none.
std::string as_setting(const std::string& argument);

/// The settings alone, when nothing but them is wanted.
train::TrainConfig load_recipe(const std::filesystem::path& path,
                               const std::vector<std::string>& overrides);

}  // namespace atl::train
