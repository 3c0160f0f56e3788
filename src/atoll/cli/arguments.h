#pragma once

#include <string>
#include <vector>

namespace atl::cli {

/// A command line in two parts: settings, which every recipe command takes, and the rest.
struct Arguments {
  std::vector<std::string> options;    ///< what the command itself declares: names, values, paths
  std::vector<std::string> overrides;  ///< "--train.lr=3e-4"
};

/// Takes the settings out of a command line. A setting is an option with a dot in its name; it may
/// be written "--key=value" or "--key value". Nothing after a lone "--" is taken.
Arguments split_arguments(const std::vector<std::string>& arguments);

}  // namespace atl::cli
