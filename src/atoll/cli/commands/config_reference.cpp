#include <fmt/format.h>

#include "atoll/cli/commands.h"
#include "atoll/cli/setting_lists.h"
#include "atoll/train/config/config.h"
#include "atoll/tune/trial/study.h"

namespace atl::cli {

namespace {

constexpr const char* kPreface =
    "# Configuration\n\n"
    "Every key of a recipe (TOML) and of the command line (`--train.steps=500`). Later sources "
    "win: "
    "default, recipe, command line; `atoll plan` prints each value and where it came from. "
    "Integers "
    "may be written `1e6` or `1_000_000`. This page is written by `atoll config-reference`.\n\n"
    "A meaning ends with the setting's rules. \"Only with\" another setting: it may be given only "
    "beside that. \"Needs\" and \"not with\": so for values other than the default. A run that "
    "breaks a rule is refused before it begins, with the rule and what to change.\n\n"
    "Most runs set some of these twenty, which `atoll train --help` lists, and leave the others "
    "as they are:\n\n";

constexpr const char* kOfStudies =
    "\nThe groups that follow are of study files, beside `[space]`: [tune a "
    "run](tune-a-run.md).\n\n";

Action add(ArgumentParser&) {
  return [](const Invocation&) {
    train::TrainConfig config;
    tune::StudySettings study;
    fmt::print("{}{}\n{}{}{}", kPreface, usual_settings_table(),
               train::make_settings(config).markdown_reference(), kOfStudies,
               tune::make_study_settings(study).markdown_reference());
    return 0;
  };
}

}  // namespace

Command config_reference_command() {
  return {.name = "config-reference",
          .summary = "Every key with its type, default and meaning, as Markdown.",
          .example = "  atoll config-reference > docs/configuration.md",
          .add = add};
}

}  // namespace atl::cli
