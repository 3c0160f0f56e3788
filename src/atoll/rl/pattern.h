#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace atl::rl {

/// A regular expression of a recipe: PCRE2 with UTF and Unicode properties. Immutable; any number
/// of threads may use one.
class Pattern {
 public:
  /// `key` is the setting that has it, for messages. Throws Error(kUser) naming it and the byte for
  /// what is no regular expression.
  Pattern(const std::string& source, std::string_view key);

  /// Whether it matches somewhere in `text`. Text that is not UTF-8, and text on which matching
  /// takes too many steps, does not match.
  bool matches(std::string_view text) const;
  /// The last match in `text`, or what its first group has matched, where the expression has one.
  std::optional<std::string> last_match(std::string_view text) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace atl::rl
