#pragma once

// What of a text counts as the answer.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace atl::serve {

/// A regular expression (PCRE2 with Unicode) that finds the answer in a text.
class AnswerPattern {
 public:
  /// Throws Error(kUser) that begins with `where` for a pattern that is not valid.
  AnswerPattern(const std::string& pattern, std::string_view where);

  /// The first group of the first match, or all of the match where the pattern has no group; none
  /// where nothing matches, or that group has no part in it. `text` is UTF-8. Throws Error(kUser)
  /// when the pattern needs too much time or memory for it.
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  std::string where_;
  bool has_group_ = false;
};

/// The part of `text` that is compared: what `pattern` finds in it, or without one (null) all of
/// it; without the white space around it. None where the pattern finds nothing.
std::optional<std::string_view> comparable(std::string_view text, const AnswerPattern* pattern);

}  // namespace atl::serve
