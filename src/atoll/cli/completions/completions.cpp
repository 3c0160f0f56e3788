#include "atoll/cli/completions/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "atoll/cli/commands.h"

namespace atl::cli {

namespace {

std::string written(const std::string& kind) {
  const Described program = {describe_commands(), describe_settings()};
  if (kind == "bash") return bash_completions(program);
  if (kind == "zsh") return zsh_completions(program);
  if (kind == "fish") return fish_completions(program);
  return manual_page(program);
}

Action add_completions(ArgumentParser& parser) {
  auto shell = std::make_shared<std::string>();
  parser.add_option("shell", *shell, "bash, zsh or fish")
      .required()
      .one_of({"bash", "zsh", "fish"});
  return [shell](const Invocation&) {
    fmt::print("{}", written(*shell));
    return 0;
  };
}

Action add_manual(ArgumentParser&) {
  return [](const Invocation&) {
    fmt::print("{}", written("manual"));
    return 0;
  };
}

}  // namespace

std::string first_clause(const std::string& help) {
  return help.substr(0, std::min(help.find("; "), help.find(". ")));
}

std::string escaped(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

Command completions_command() {
  return {.name = "completions",
          .summary = "A script that completes atoll's commands, options and settings in a shell.",
          .example =
              "  atoll completions bash > ~/.local/share/bash-completion/completions/atoll\n"
              "  atoll completions zsh > ~/.zfunc/_atoll        # a folder of your $fpath\n"
              "  atoll completions fish > ~/.config/fish/completions/atoll.fish",
          .add = add_completions};
}

Command manual_command() {
  return {.name = "manual",
          .summary = "The manual page, as roff.",
          .example = "  atoll manual | man -l -",
          .add = add_manual};
}

}  // namespace atl::cli
