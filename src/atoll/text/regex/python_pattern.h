#pragma once

// Regular expressions as Python's `re` reads them, run by PCRE2: PEFT names modules with them.

#include <optional>
#include <string>
#include <string_view>

#include "atoll/text/regex/pcre2_code.h"

namespace atl::text {

/// A compiled pattern of Python's; immutable, any number of threads may match with it.
class PythonPattern {
 public:
  /// Throws Error(kUser), starting with `where`, for a pattern that is not valid, and for one that
  /// uses what Python and PCRE2 read differently and this does not rewrite.
  PythonPattern(std::string_view pattern, std::string_view where);

  /// Whether all of `text` matches, as re.fullmatch says. Throws Error(kUser) when that takes too
  /// long.
  bool matches(std::string_view text) const;
  /// Whether a beginning of `text` matches, as re.match says. Throws as matches().
  bool matches_beginning(std::string_view text) const;
  /// What the group of that name holds after re.match; nothing where that finds nothing. Throws as
  /// matches().
  std::optional<std::string> group(std::string_view text, const std::string& name) const;

 private:
  std::string where_;
  Pcre2Code code_;
};

}  // namespace atl::text
