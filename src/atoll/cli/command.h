#pragma once

#include <functional>
#include <string>
#include <vector>

#include "atoll/cli/argument_parser.h"

namespace atl::cli {

/// What stands on a command line beside the command's own options.
struct Invocation {
  /// "--train.lr=3e-4": options whose name has a dot, in the order they were given.
  std::vector<std::string> overrides;
  /// All words after the command's name, as they were given.
  std::vector<std::string> words;
};

/// Does the command's work once its options are read; returns the exit code. Throws Error.
using Action = std::function<int(const Invocation&)>;

/// One verb of the program. Each stands in a file of its own and is listed in command_list.cpp.
struct Command {
  const char* name = "";
  const char* summary = "";      ///< one line of `atoll help`
  const char* example = "";      ///< lines at the end of `atoll NAME --help`, two spaces before
  const char* stray = "";        ///< what to do instead of an argument that it does not take
  bool takes_overrides = false;  ///< accepts --group.key=value for every key of a recipe
  std::vector<std::string> settings = {};  ///< without takes_overrides: the keys that it accepts
  Action (*add)(ArgumentParser& parser) = nullptr;  ///< declares options on `parser`
  /// What would take less memory, for the message when there is not enough; empty: nothing.
  const char* memory_advice = "";
};

}  // namespace atl::cli
