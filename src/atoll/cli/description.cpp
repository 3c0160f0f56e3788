#include "atoll/cli/description.h"

#include <CLI/CLI.hpp>

#include "atoll/cli/commands.h"
#include "atoll/train/config.h"

namespace atl::cli {

namespace {

// CLI11 keeps the words of IsMember only in the name of the type: "TEXT:{init,issue}".
std::vector<std::string> choices_in(const std::string& type) {
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

OptionDescription describe(const CLI::Option& option) {
  OptionDescription described = {.help = option.get_description()};
  const std::string type = option.get_type_name();
  described.choices = choices_in(type);
  if (option.get_positional()) {
    described.value = option.get_name(/*positional=*/true);
    return described;
  }
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) described.value = type.substr(0, type.find(':'));
  return described;
}

void describe(const CLI::App& app, CommandDescription command,
              std::vector<CommandDescription>& out) {
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? command.arguments : command.options).push_back(describe(*option));
  }
  const std::vector<const CLI::App*> parts =
      app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* part : parts) command.parts.push_back(part->get_name());
  out.push_back(command);
  for (const CLI::App* part : parts) {
    describe(*part,
             {.name = command.name + " " + part->get_name(),
              .summary = part->get_description(),
              .takes_settings = command.takes_settings},
             out);
  }
}

}  // namespace

std::vector<CommandDescription> describe_commands() {
  std::vector<CommandDescription> all;
  for (const Command& command : commands()) {
    CLI::App app(command.summary, std::string("atoll ") + command.name);
    command.add(app);
    describe(app,
             {.name = command.name,
              .summary = command.summary,
              .example = command.example,
              .takes_settings = command.takes_overrides},
             all);
  }
  return all;
}

std::vector<OptionDescription> describe_settings() {
  train::TrainConfig config;
  const Settings settings = train::make_settings(config);
  std::vector<OptionDescription> all;
  for (const Setting& setting : settings.all()) {
    std::vector<std::string> choices = setting.choices.names;
    if (std::holds_alternative<bool*>(setting.target)) choices = {"true", "false"};
    all.push_back({.names = {"--" + setting.key},
                   .value = setting.type_text(),
                   .help = setting.doc,
                   .choices = std::move(choices)});
  }
  return all;
}

}  // namespace atl::cli
