#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace atl::text {

/// A regular expression (PCRE2 with Unicode) whose first group is what is looked for. Regex is for
/// cutting text into words instead: it has no groups and refuses empty matches.
class RegexGroup {
 public:
  /// Throws Error(kUser) that begins with `where` for a pattern that is not valid.
  RegexGroup(const std::string& pattern, std::string_view where);
  ~RegexGroup();
  RegexGroup(RegexGroup&&) noexcept;
  RegexGroup& operator=(RegexGroup&&) noexcept;

  /// The first group of the first match, or all of the match where the pattern has no group; none
  /// where nothing matches, or that group has no part in it. `text` is UTF-8. Throws Error(kUser)
  /// when the pattern needs too much time or memory for it.
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace atl::text
