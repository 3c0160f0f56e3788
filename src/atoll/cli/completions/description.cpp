#include "atoll/cli/completions/description.h"

#include "atoll/cli/commands.h"
#include "atoll/train/config/config.h"

namespace atl::cli {

namespace {

OptionDescription describe(const Argument& argument) {
  return {.names = argument.is_positional() ? std::vector<std::string>() : argument.names(),
          .value = argument.value_name(),
          .help = argument.description(),
          .choices = argument.choices()};
}

void describe(const ArgumentParser& parser, CommandDescription command,
              std::vector<CommandDescription>& out) {
  for (const Argument& argument : parser.arguments()) {
    (argument.is_positional() ? command.arguments : command.options).push_back(describe(argument));
  }
  const std::vector<ArgumentParser> parts = parser.subcommands();
  for (const ArgumentParser& part : parts) command.parts.push_back(part.name());
  out.push_back(command);
  for (const ArgumentParser& part : parts) {
    describe(part,
             {.name = command.name + " " + part.name(),
              .summary = part.description(),
              .takes_settings = command.takes_settings},
             out);
  }
}

}  // namespace

std::vector<CommandDescription> describe_commands() {
  std::vector<CommandDescription> all;
  for (const Command& command : commands()) {
    ArgumentParser parser(command.summary, std::string("atoll ") + command.name);
    command.add(parser);
    describe(parser,
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
