#include "atoll/tune/run/starts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/json.h"
#include "atoll/base/log.h"
#include "atoll/nn/model.h"
#include "atoll/train/model/options.h"
#include "atoll/tune/run/open_study.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostOfAStudy = 3;  // points that an earlier study gives

std::optional<double> number_of(const SettingValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  return std::nullopt;
}

// The coordinate nearest to a value; nothing for a word that is not among the choices.
std::optional<double> unit_of(const Dimension& dimension, const SettingValue& value) {
  if (dimension.kind != Dimension::Kind::kCategory) {
    const std::optional<double> number = number_of(value);
    if (!number || (dimension.log && *number <= 0)) return std::nullopt;
    return dimension.unit_of(*number);
  }
  for (std::size_t i = 0; i < dimension.choices.size(); ++i) {
    if (to_toml(dimension.choices[i]) == to_toml(value)) return dimension.unit_of_index(i);
  }
  return std::nullopt;
}

Units of_recipe(const Study& study) {
  Units units;
  for (const Dimension& dimension : study.space().dimensions()) {
    const SettingValue value = study.recipe().settings().find(dimension.key).value();
    units.push_back(unit_of(dimension, value).value_or(0.5));
  }
  return units;
}

double parameters_without_embeddings(const train::TrainConfig& config) {
  constexpr std::int64_t kAnyVocabulary = 256;  // only the embeddings' size depends on it
  const nn::ModelConfig shape = train::state_options(config, kAnyVocabulary, -1).model;
  const nn::ParameterCount count = nn::count_parameters(*nn::build_model(shape, {}));
  const std::int64_t matrices = shape.tie_embeddings ? 1 : 2;
  return static_cast<double>(count.total - count.position - count.idle -
                             matrices * shape.vocab_size * shape.hidden_size);
}

Units of_step_law(const Study& study) {
  const train::TrainConfig& config = study.recipe().config();
  const Space& space = study.space();
  const int lr = space.find("optim.lr"), batch = space.find("train.batch_size");
  if (lr < 0 && batch < 0) {
    throw user_error(
        "study.prior has step-law, which is about optim.lr and train.batch_size, and the space has "
        "neither; leave it out");
  }
  const double parameters = parameters_without_embeddings(config);
  const double tokens = static_cast<double>(config.train.steps) *
                        static_cast<double>(config.train.batch_size) *
                        static_cast<double>(config.train.context);
  const StepLaw law = step_law(parameters, tokens);
  const double sequences = law.batch_tokens / static_cast<double>(config.train.context);
  log::info(
      "Step Law, {:.3g} parameters without embeddings and {:.3g} tokens: optim.lr = {:.3g}, "
      "train.batch_size = {:.3g}",
      parameters, tokens, law.lr, sequences);
  constexpr double kFewestParameters = 5e7, kFewestTokens = 1e9;
  if (parameters < kFewestParameters || tokens < kFewestTokens) {
    log::warning(
        "Step Law was fitted to models of some 60 million parameters and more and to billions of "
        "tokens; here it is a guess");
  }
  Units units = of_recipe(study);
  const auto set = [&](int index, double value) {
    if (index < 0) return;
    const auto i = static_cast<std::size_t>(index);
    units[i] = space[i].unit_of(value);
  };
  set(lr, law.lr);
  set(batch, sequences);
  return units;
}

// "0.003" or "\"lion\"", as a trial has it.
SettingValue value_of(const std::string& toml) {
  return parse_toml("value = " + toml, "a trial").front().value;
}

std::vector<Start> of_study(const Study& study, const fs::path& dir) {
  const std::unique_ptr<Study> earlier = open_study(dir);
  const History history = history_of(read_study(dir));
  const std::vector<Objective> first = {earlier->objectives().front()};
  std::vector<const Trial*> shown;
  std::int64_t furthest = 0;
  for (const Trial& trial : history.trials()) {
    if (!trial.measured.empty() && !trial.has_failed()) {
      furthest = std::max(furthest, trial.reached());
    }
  }
  for (const Trial& trial : history.trials()) {
    if (trial.at(furthest) != nullptr && !trial.has_failed()) shown.push_back(&trial);
  }
  if (shown.empty()) {
    throw user_error("study.prior: no trial of {} has shown anything; leave it out", dir.string());
  }
  const auto cost_of = [&](const Trial* trial) {
    return cost(first, 0, trial->at(furthest)->values.front());
  };
  std::stable_sort(shown.begin(), shown.end(),
                   [&](const Trial* a, const Trial* b) { return cost_of(a) < cost_of(b); });
  std::vector<Start> starts;
  for (std::size_t k = 0; k < std::min(kMostOfAStudy, shown.size()); ++k) {
    Units units = of_recipe(study);
    bool has_any = false;
    for (const auto& [key, toml] : shown[k]->settings) {
      const int index = study.space().find(key);
      if (index < 0) continue;
      const auto i = static_cast<std::size_t>(index);
      const std::optional<double> unit = unit_of(study.space()[i], value_of(toml));
      if (!unit) continue;
      units[i] = *unit;
      has_any = true;
    }
    if (!has_any) {
      throw user_error("study.prior: {} has no setting of this space; leave it out", dir.string());
    }
    starts.push_back({units, fmt::format("trial {} of {}", shown[k]->number, dir.string())});
  }
  return starts;
}

}  // namespace

StepLaw step_law(double parameters, double tokens) {
  return {.lr = 1.79 * std::pow(parameters, -0.713) * std::pow(tokens, 0.307),
          .batch_tokens = 0.58 * std::pow(tokens, 0.571)};
}

std::vector<Start> starts_of(const Study& study) {
  std::vector<Start> starts;
  for (const std::string& prior : study.settings().prior) {
    std::vector<Start> some;
    if (prior == "recipe") {
      some = {{of_recipe(study), "the recipe"}};
    } else if (prior == "step-law") {
      some = {{of_step_law(study), "Step Law"}};
    } else if (directory_exists(prior)) {
      some = of_study(study, prior);
    } else {
      throw user_error("study.prior: \"{}\" is neither recipe, step-law nor a study's directory",
                       prior);
    }
    for (Start& start : some) {
      start.units = study.space().canonical(start.units);
      const bool is_there = std::any_of(starts.begin(), starts.end(), [&](const Start& other) {
        return other.units == start.units;
      });
      if (!is_there) starts.push_back(std::move(start));
    }
  }
  return starts;
}

std::vector<Start> stored_starts(const Study& study, const fs::path& path) {
  if (study.settings().prior.empty()) return {};
  if (path_exists(path)) {
    std::vector<Start> starts;
    try {
      for (const nlohmann::json& one : parse_json(read_file(path), path.string())) {
        starts.push_back({one.at("units").get<Units>(), one.at("why").get<std::string>()});
        if (starts.back().units.size() != study.space().size()) {
          throw damaged_error("{}: a point of another space", path.string());
        }
      }
    } catch (const nlohmann::json::exception& error) {
      throw damaged_error("{}: {}", path.string(), json_reason(error));
    }
    return starts;
  }
  std::vector<Start> starts = starts_of(study);
  nlohmann::json all = nlohmann::json::array();
  for (const Start& start : starts) all.push_back({{"units", start.units}, {"why", start.why}});
  write_file(path, all.dump(2) + "\n");
  return starts;
}

}  // namespace atl::tune
