#pragma once

#include <string>
#include <vector>

namespace atl::cli {

/// An option, an argument or a setting, as the manual and the completions of shells need it.
struct OptionDescription {
  std::vector<std::string> names;  ///< "-n", "--ranks"; empty for an argument, which has a place
  std::string value;               ///< what its value is called: "TEXT"; empty for a flag
  std::string help;
  std::vector<std::string> choices;  ///< the only words it may be, if they are few
};

/// A command, or a part of one ("bench step").
struct CommandDescription {
  std::string name;
  std::string summary;
  std::string example;
  bool takes_settings = false;
  std::vector<OptionDescription> options;
  std::vector<OptionDescription> arguments;  ///< in their order
  std::vector<std::string> parts;            ///< "step" of `atoll bench step`
};

/// Every command that `atoll help` lists, each before its parts. Read from the declarations that
/// the parser itself uses, so that nothing is written twice.
std::vector<CommandDescription> describe_commands();

/// Every setting: "--train.steps", its type, its meaning.
std::vector<OptionDescription> describe_settings();

}  // namespace atl::cli
