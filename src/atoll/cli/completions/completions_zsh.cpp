#include <fmt/format.h>

#include "atoll/cli/completions/completions.h"

namespace atl::cli {

namespace {

constexpr const char* kFunction = R"(  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT -= 1 ))
  if (( CURRENT > 2 && ${parts[(Ie)$command $words[2]]} )); then
    command+=" $words[2]"
    shift words
    (( CURRENT -= 1 ))
  fi
)";

// Inside single quotes.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string action(const std::vector<std::string>& choices) {
  return choices.empty() ? "_files" : fmt::format("({})", fmt::join(choices, " "));
}

// '--backend=[help]:what it wants:(gloo tcp)', as _arguments takes it.
std::string specification(const OptionDescription& option, const std::string& name) {
  const std::string help = escaped(first_clause(option.help), "[]\\");
  if (option.value.empty()) return quoted(fmt::format("{}[{}]", name, help));
  return quoted(fmt::format("*{}{}[{}]:{}:{}", name, name.starts_with("--") ? "=" : "", help,
                            escaped(option.value, ":\\"), action(option.choices)));
}

std::string arguments_of(const CommandDescription& command) {
  std::string out = "_arguments";
  for (const OptionDescription& option : command.options) {
    for (const std::string& name : option.names) out += " \\\n      " + specification(option, name);
  }
  if (command.takes_settings) out += " \\\n      $settings";
  std::size_t place = 1;
  if (!command.parts.empty()) {
    out += fmt::format(" \\\n      '{}:part:{}'", place++, action(command.parts));
  }
  for (const OptionDescription& argument : command.arguments) {
    if (argument.choices.empty()) break;
    out += fmt::format(" \\\n      '{}:{}:{}'", place++, argument.value, action(argument.choices));
  }
  return out + " \\\n      '*:file:_files'";
}

}  // namespace

std::string zsh_completions(const Described& program) {
  std::string commands, parts, cases, settings;
  for (const OptionDescription& setting : program.settings) {
    settings += "    " + specification(setting, setting.names.front()) + "\n";
  }
  for (const CommandDescription& command : program.commands) {
    const bool is_part = command.name.find(' ') != std::string::npos;
    if (is_part) {
      parts += "    " + quoted(command.name) + "\n";
    } else {
      commands += "    " + quoted(command.name + ":" + command.summary) + "\n";
    }
    cases += fmt::format("    {}) {} ;;\n", quoted(command.name), arguments_of(command));
  }
  commands += "    'help:What there is, or what one command does.'\n";
  cases += "    help) _describe -t commands command commands ;;\n";
  return fmt::format(
      "#compdef atoll\n# Completions of atoll for zsh; `atoll completions zsh` writes them.\n\n"
      "_atoll() {{\n  local -a commands parts settings\n  commands=(\n{}  )\n  parts=(\n{}  )\n"
      "  settings=(\n{}  )\n{}  case $command in\n{}  esac\n}}\n\n_atoll \"$@\"\n",
      commands, parts, settings, kFunction, cases);
}

}  // namespace atl::cli
