#pragma once

#include <string>
#include <vector>

#include "atoll/cli/completions/description.h"

namespace atl::cli {

/// What a shell's script of completions is made from.
struct Described {
  std::vector<CommandDescription> commands;
  std::vector<OptionDescription> settings;
};

/// The script that completes `atoll` in bash, zsh or fish.
std::string bash_completions(const Described& program);
std::string zsh_completions(const Described& program);
std::string fish_completions(const Described& program);

/// The first clause of a help text, for shells that show a line beside each name.
std::string first_clause(const std::string& help);

/// `text` with a backslash before each character of `special`.
std::string escaped(const std::string& text, const std::string& special);

/// The manual page atoll(1), as roff.
std::string manual_page(const Described& program);

}  // namespace atl::cli
