#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace atl::cli {

/// Whether `word` is one of `words`, which stand in one text with spaces between.
inline bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

/// A name with '-' where some write '_'.
inline std::string with_dashes(std::string_view typed) {
  std::string name(typed);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace atl::cli
