#pragma once

// JSON as Python's json module reads and writes it, where that is more than the standard allows.

#include <optional>
#include <string>
#include <string_view>

namespace atl::data {

/// A line of JSON that a strict parser can read.
struct PlainJson {
  std::string text;         ///< JSON with strings in place of what only Python reads
  std::string first;        ///< how the first of these was spelled: "NaN", "\ud83d", "1e400"
  const char* reason = "";  ///< what is wrong with it
};

/// Replaces NaN, Infinity, -Infinity, numbers that neither 64 bits nor a double hold, and lone
/// surrogates such as "\ud83d": Python's json module reads these, and a strict parser refuses the
/// whole line. What stands in their place can be found with has_replacement(). Nothing where the
/// line has none of them. Other mistakes of the line stay in it.
std::optional<PlainJson> without_python_values(std::string_view line);

/// Whether a value of such a line holds what was replaced, so that it cannot be used.
bool has_replacement(std::string_view value);

}  // namespace atl::data
