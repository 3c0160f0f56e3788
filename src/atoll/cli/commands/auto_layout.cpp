#include "atoll/cli/commands/auto_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/log.h"
#include "atoll/cli/models/vocabulary.h"

namespace atl::cli {

namespace {

std::string_view key_of(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

// A setting is given once: the layout's come in place of those that were given.
std::vector<std::string> joined(std::vector<std::string> overrides,
                                const std::vector<std::string>& layout) {
  std::erase_if(overrides, [&](const std::string& given) {
    return std::any_of(layout.begin(), layout.end(), [&](const std::string& argument) {
      return key_of(argument) == key_of(given);
    });
  });
  overrides.insert(overrides.end(), layout.begin(), layout.end());
  return overrides;
}

}  // namespace

std::vector<std::string> with_layout(const std::string& path,
                                     const std::vector<std::string>& overrides, int ranks) {
  const train::Recipe recipe(path, overrides);
  if (recipe.config().parallel.layout != "auto") return overrides;
  const std::filesystem::path directory = recipe.config().run.dir;
  if (const auto before = plan::read_choice(directory); before && before->ranks == ranks) {
    log::info("layout: that of {}: {}", (directory / plan::kChoiceFile).string(),
              fmt::join(before->arguments, " "));
    return joined(overrides, before->arguments);
  }
  const Vocabulary vocabulary = find_vocabulary(recipe.config());
  plan::Question question = plan::ask(path, overrides, vocabulary.size, {.ranks = ranks});
  question.rows = 1;
  const plan::Row best = plan::rank_layouts(question).rows.front();
  const plan::Choice choice = {.ranks = ranks,
                               .arguments = as_arguments(best.layout),
                               .step_seconds = best.estimate.step_seconds};
  plan::write_choice(directory, choice);
  log::info("layout: {}, planned {:.3f} s a step; the planner chose it of those that fit",
            describe(best.layout), choice.step_seconds);
  return joined(overrides, choice.arguments);
}

void PredictionCheck::write(const metrics::Record& record) {
  for (const auto& [name, value] : record.values) {
    const auto* ms = std::get_if<double>(&value);
    if (name == "step_ms" && ms != nullptr) step_ms_.push_back(*ms);
  }
}

std::string PredictionCheck::text() const {
  if (step_ms_.empty()) return "";
  std::vector<double> later(step_ms_.begin() + (step_ms_.size() > 1 ? 1 : 0), step_ms_.end());
  std::nth_element(later.begin(), later.begin() + std::ssize(later) / 2, later.end());
  const double measured = later[later.size() / 2] / 1e3;
  return fmt::format("planned {:.3g} s a step, measured {:.3g} s: {:.0f}% off",
                     choice_.step_seconds, measured,
                     100 * std::abs(choice_.step_seconds / measured - 1));
}

std::optional<plan::Choice> choice_of(const train::TrainConfig& config, int ranks) {
  std::optional<plan::Choice> choice = plan::read_choice(config.run.dir);
  if (!choice || choice->ranks != ranks) return std::nullopt;
  if (choice->arguments != as_arguments(plan::layout_of(config, ranks))) return std::nullopt;
  return choice;
}

}  // namespace atl::cli
