#pragma once

// A study as its file describes it.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/settings/settings.h"
#include "atoll/train/config/recipe.h"
#include "atoll/tune/search/space.h"

namespace atl::tune {

/// What a study file has beside its space.
struct StudySettings {
  std::string recipe;
  std::string dir;
  std::int64_t seed = 1;
  std::int64_t workers = 1;
  std::int64_t ranks = 1;
  std::int64_t islands = 1;
  std::string listen;
  std::string identity;
  std::string secret;
  double lease_s = 30;
  std::string searcher = "gp";
  std::string scheduler = "none";
  std::vector<std::string> objective = {"held_out_loss"};
  double target_loss = 0;
  std::int64_t startup = 10;
  std::vector<std::string> prior;
  std::string keep = "best";

  std::int64_t trials = 0;
  std::int64_t tokens = 0;
  double hours = 0;

  std::int64_t min_steps = 0;
  std::int64_t eta = 3;
  std::int64_t every = 0;
  std::string decay = "auto";

  std::int64_t population = 8;
  std::int64_t interval = 0;
  double quantile = 0.25;
  double resample = 0.25;
  std::string explore = "perturb";

  std::string task;
  std::int64_t task_limit = 0;
};

/// Registers every key of `settings`, which must outlive the result and stay where it is.
Settings make_study_settings(StudySettings& settings);

/// What is measured of a trial, and which way is better.
struct Objective {
  std::string name;  ///< a metric of metrics.jsonl, "task", "seconds_to_loss", "tokens_to_loss"
  bool maximise = false;
};

/// A study file, the recipe that it names, and what the command line changes in both: checked,
/// before anything is made. Stays where it is, because Settings point into it.
class Study {
 public:
  /// `overrides`: "--budget.trials=20" of the study, "--train.steps=400" of the recipe. Throws
  /// Error(kUser) naming the place of a mistake.
  Study(const std::filesystem::path& path, const std::vector<std::string>& overrides);
  Study(const Study&) = delete;
  Study& operator=(const Study&) = delete;

  const StudySettings& settings() const { return settings_; }
  const Space& space() const { return space_; }
  const std::vector<Objective>& objectives() const { return objectives_; }
  const train::Recipe& recipe() const { return *recipe_; }
  std::filesystem::path dir() const { return settings_.dir; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(settings_.seed); }
  /// Steps of a whole trial.
  std::int64_t max_steps() const { return recipe_->config().train.steps; }
  /// Whether a trial that goes on after a rung does so from its checkpoint; otherwise it is trained
  /// again from the beginning, so that its learning rate decays to the rung's end.
  bool continues() const { return continues_; }
  /// The recipe with all that is not by default, as a TOML file.
  const std::string& recipe_toml() const { return recipe_toml_; }
  /// The study as a file of its own: every setting and the space.
  std::string to_toml() const;
  /// All on which its suggestions and results depend, by line "key value": what a store is for.
  std::string identity() const;

 private:
  void read_objectives();
  void check();
  void check_budget();
  void check_scheduler();
  void check_recipe();
  void check_ranks();

  std::string origin_;
  StudySettings settings_;
  Settings registry_;
  Space space_;
  std::vector<Objective> objectives_;
  std::unique_ptr<train::Recipe> recipe_;
  std::string recipe_toml_;
  bool continues_ = true;
};

/// The settings of a recipe that are not by default, as TOML; `changed` takes the place of what
/// it has, with `remark` as a comment behind each.
std::string to_recipe(const Settings& settings,
                      const std::vector<std::pair<std::string, std::string>>& changed,
                      const std::string& remark);

}  // namespace atl::tune
