#include "atoll/hub/patterns.h"

#include <algorithm>

namespace atl::hub {

namespace {

// Bytes of the UTF-8 character that `text` begins with; 1 for what is none.
std::size_t character_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t size = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return std::min(size, text.size());
}

// Where the set that begins at pattern[0] == '[' ends; npos: it is no set, but the character '['.
std::size_t set_end(std::string_view pattern) {
  std::size_t at = 1;
  if (at < pattern.size() && pattern[at] == '!') ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;
  return pattern.find(']', at);
}

// `set`: what stands between the brackets. UTF-8 keeps the order of characters.
bool is_in_set(std::string_view set, std::string_view character) {
  const bool is_negated = set.starts_with('!');
  if (is_negated) set.remove_prefix(1);
  bool found = false;
  while (!set.empty()) {
    const std::string_view low = set.substr(0, character_size(set));
    set.remove_prefix(low.size());
    if (set.size() > 1 && set.front() == '-') {
      set.remove_prefix(1);
      const std::string_view high = set.substr(0, character_size(set));
      set.remove_prefix(high.size());
      found = found || (low <= character && character <= high);
    } else {
      found = found || low == character;
    }
  }
  return found != is_negated;
}

// One character of `path` against what `pattern` begins with, which is no '*'. Bytes taken of
// both; of the pattern 0: it does not fit.
struct Taken {
  std::size_t path = 0;
  std::size_t pattern = 0;
};
Taken take_one(std::string_view path, std::string_view pattern) {
  const std::size_t size = character_size(path);
  if (pattern.front() == '?') return {size, 1};
  if (pattern.front() == '[') {
    const std::size_t end = set_end(pattern);
    if (end != pattern.npos) {
      const bool fits = is_in_set(pattern.substr(1, end - 1), path.substr(0, size));
      return fits ? Taken{size, end + 1} : Taken{};
    }
  }
  return pattern.front() == path.front() ? Taken{1, 1} : Taken{};
}

}  // namespace

bool fits_pattern(std::string_view path, std::string_view given) {
  std::string pattern(given);
  std::replace(pattern.begin(), pattern.end(), '\\', '/');
  if (pattern.ends_with('/')) pattern += '*';
  // Of several '*' only the last needs to be tried again: what it takes, an earlier one need not.
  std::string_view rest = pattern;
  std::string_view star;       // the pattern behind the last '*'
  std::string_view star_path;  // where the text that it takes ends
  bool has_star = false;
  for (;;) {
    if (rest.starts_with('*')) {
      rest.remove_prefix(1);
      star = rest;
      star_path = path;
      has_star = true;
      continue;
    }
    if (path.empty() && rest.empty()) return true;
    if (!path.empty() && !rest.empty()) {
      if (const Taken taken = take_one(path, rest); taken.pattern > 0) {
        path.remove_prefix(taken.path);
        rest.remove_prefix(taken.pattern);
        continue;
      }
    }
    if (!has_star || star_path.empty()) return false;
    star_path.remove_prefix(character_size(star_path));
    path = star_path;
    rest = star;
  }
}

bool is_wanted(std::string_view path, const std::vector<std::string>& include,
               const std::vector<std::string>& exclude) {
  const auto fits = [&](const std::string& pattern) { return fits_pattern(path, pattern); };
  if (!include.empty() && std::none_of(include.begin(), include.end(), fits)) return false;
  return std::none_of(exclude.begin(), exclude.end(), fits);
}

}  // namespace atl::hub
