#pragma once

// Settings as commands list them for people.

#include <string>
#include <vector>

namespace atl::cli {

/// The twenty settings that most runs set, with their defaults, for `atoll COMMAND --help` of the
/// commands that read recipes.
std::string usual_settings();

/// The same settings as a table in Markdown.
std::string usual_settings_table();

/// The keys of `usual_settings`.
std::vector<std::string> usual_setting_keys();

/// The settings of recipes and studies that have each of `words` in their name, meaning, default or
/// in what other programs call them, at most `columns` wide; those with a word in their name come
/// first. Without words all, a line each. Throws Error(kUser) when there is none.
std::string find_settings(const std::vector<std::string>& words, std::size_t columns);

}  // namespace atl::cli
