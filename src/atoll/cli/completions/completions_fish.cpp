#include <fmt/format.h>

#include "atoll/cli/completions/completions.h"

namespace atl::cli {

namespace {

std::string quoted(const std::string& text) {
  return "'" + escaped(text, "\\'") + "'";
}

// When a line counts: the command's words are there.
std::string condition(const std::string& command) {
  const std::size_t space = command.find(' ');
  const std::string seen = "__fish_seen_subcommand_from ";
  if (space == std::string::npos) return quoted(seen + command);
  return quoted(seen + command.substr(0, space) + "; and " + seen + command.substr(space + 1));
}

std::string option_line(const std::string& when, const OptionDescription& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  std::string value;
  if (!option.choices.empty()) {
    value = fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(option.choices, " "))));
  } else if (!option.value.empty()) {
    value = " -r -F";
  }
  return fmt::format("complete -c atoll -n {}{}{} -d {}\n", when, names, value,
                     quoted(first_clause(option.help)));
}

std::string words_line(const std::string& when, const std::vector<std::string>& words) {
  if (words.empty()) return "";
  return fmt::format("complete -c atoll -n {} -f -a {}\n", when,
                     quoted(fmt::format("{}", fmt::join(words, " "))));
}

}  // namespace

std::string fish_completions(const Described& program) {
  std::string out = "# Completions of atoll for fish; `atoll completions fish` writes them.\n\n";
  std::vector<std::string> names;
  std::vector<std::string> with_settings;
  for (const CommandDescription& command : program.commands) {
    if (command.name.find(' ') == std::string::npos) {
      names.push_back(command.name);
      if (command.takes_settings) with_settings.push_back(command.name);
      out += fmt::format("complete -c atoll -n __fish_use_subcommand -f -a {} -d {}\n",
                         quoted(command.name), quoted(command.summary));
    }
    const std::string when = condition(command.name);
    for (const OptionDescription& option : command.options) out += option_line(when, option);
    out += words_line(when, command.parts);
    for (const OptionDescription& argument : command.arguments) {
      out += words_line(when, argument.choices);
    }
  }
  out += "complete -c atoll -n __fish_use_subcommand -f -a help -d 'What there is'\n";
  out += words_line(condition("help"), names);
  const std::string any =
      quoted(fmt::format("__fish_seen_subcommand_from {}", fmt::join(with_settings, " ")));
  for (const OptionDescription& setting : program.settings) out += option_line(any, setting);
  return out;
}

}  // namespace atl::cli
