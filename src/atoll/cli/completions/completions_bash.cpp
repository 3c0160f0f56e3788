// Bash splits words at "=", so "--train.steps=5" comes as three; a value is told by what is before.

#include <fmt/format.h>

#include "atoll/cli/completions/completions.h"

namespace atl::cli {

namespace {

constexpr const char* kFunction = R"bash(_atoll() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]} name= words
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "$(_atoll_words '')" -- "$current"))
    return
  fi
  if ((COMP_CWORD > 2)) && [[ -n $(_atoll_words "$command ${COMP_WORDS[2]}") ]]; then
    command+=" ${COMP_WORDS[2]}"
  fi
  if [[ $current == = ]]; then
    current= name=$before
  elif [[ $before == = ]]; then
    name=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $before == -* ]] && _atoll_takes_value "$command" "$before"; then
    name=$before
  fi
  if [[ -n $name ]]; then
    words=$(_atoll_values "$command" "$name")
  elif [[ $current == -* ]]; then
    words=$(_atoll_options "$command")
  else
    words=$(_atoll_words "$command")
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _atoll atoll
)bash";

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string options_of(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return joined(names) + (command.takes_settings ? " $_atoll_settings" : "");
}

// What may stand where no option does.
std::string words_of(const CommandDescription& command) {
  std::vector<std::string> words = command.parts;
  for (const OptionDescription& argument : command.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
  }
  return joined(words);
}

// "    'train --backend' | 'train -b') echo 'gloo tcp' ;;", if there is anything to say.
std::string case_line(const std::vector<std::string>& patterns, const std::string& what) {
  return fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), what);
}

std::vector<std::string> patterns_of(const CommandDescription& command,
                                     const OptionDescription& option) {
  std::vector<std::string> patterns;
  for (const std::string& name : option.names) {
    patterns.push_back(fmt::format("'{} {}'", command.name, name));
  }
  return patterns;
}

std::string in_function(const std::string& name, const std::string& subject,
                        const std::string& lines, const std::string& otherwise) {
  return fmt::format("{}() {{\n  case {} in\n{}    *) {} ;;\n  esac\n}}\n\n", name, subject, lines,
                     otherwise);
}

}  // namespace

std::string bash_completions(const Described& program) {
  std::string settings, words, options, values, flags;
  std::vector<std::string> names;
  for (const OptionDescription& setting : program.settings) {
    settings += fmt::format("\n  {}=", setting.names.front());
    if (setting.choices.empty()) continue;
    values +=
        case_line({"*' " + setting.names.front() + "'"}, "echo '" + joined(setting.choices) + "'");
  }
  for (const CommandDescription& command : program.commands) {
    if (command.name.find(' ') == std::string::npos) names.push_back(command.name);
    const std::string quoted = "'" + command.name + "'";
    // A part of a command has no words of its own, and is known by having a line here.
    const std::string own = words_of(command);
    words += case_line({quoted}, "echo '" + (own.empty() ? " " : own) + "'");
    options += case_line({quoted}, "echo \"" + options_of(command) + "\"");
    for (const OptionDescription& option : command.options) {
      if (option.value.empty()) {
        flags += case_line(patterns_of(command, option), "return 1");
      } else if (!option.choices.empty()) {
        values += case_line(patterns_of(command, option), "echo '" + joined(option.choices) + "'");
      }
    }
  }
  const std::string all = joined(names) + " help --help --version";
  return "# Completions of atoll for bash; `atoll completions bash` writes "
         "them.\n\n_atoll_settings='" +
         settings + "\n'\n\n" +
         in_function("_atoll_words", "$1",
                     case_line({"''"}, "echo '" + all + "'") +
                         case_line({"help"}, "echo '" + joined(names) + "'") + words,
                     "true") +
         in_function("_atoll_options", "$1", options, "echo --help") +
         in_function("_atoll_values", "\"$1 $2\"", values, "true") +
         in_function("_atoll_takes_value", "\"$1 $2\"", flags, "true") + kFunction;
}

}  // namespace atl::cli
