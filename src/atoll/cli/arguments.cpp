#include "atoll/cli/arguments.h"

#include <algorithm>
#include <cctype>

namespace atl::cli {

namespace {

// "--train.lr" in "--train.lr=3": letters, digits and underscores with dots between. Empty when the
// argument is something else, such as a prompt that begins with two dashes.
std::string setting_name(const std::string& argument) {
  if (!argument.starts_with("--")) return "";
  const std::string name = argument.substr(0, argument.find('='));
  const bool plain = std::all_of(name.begin() + 2, name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
  const std::size_t dot = name.find('.');
  return plain && dot != std::string::npos && dot > 2 && name.back() != '.' ? name : "";
}

}  // namespace

Arguments split_arguments(const std::vector<std::string>& arguments) {
  Arguments split;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      split.options.insert(split.options.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                           arguments.end());
      break;
    }
    const std::string name = setting_name(argument);
    if (name.empty()) {
      split.options.push_back(argument);
    } else if (name.size() < argument.size()) {
      split.overrides.push_back(argument);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      split.overrides.push_back(argument + "=" + arguments[++i]);
    } else {
      split.overrides.push_back(argument);  // Settings says what value it wants
    }
  }
  return split;
}

}  // namespace atl::cli
