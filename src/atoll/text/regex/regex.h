#pragma once

// Regular expressions as Hugging Face files mean them (Oniguruma, Ruby syntax), run by PCRE2.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/text/regex/pcre2_code.h"

struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace atl::text {

/// Rewrites an Oniguruma pattern so that PCRE2 matches the same text. What the two read differently
/// and this cannot rewrite (anchors, backreferences, class intersections, \w, ...) is refused with
/// Error(kUser) that starts with `where` and names the construct and its byte.
std::string to_pcre2_syntax(std::string_view pattern, std::string_view where);

/// A pattern that matches `literal` and nothing else.
std::string quote_for_pcre2(std::string_view literal);

/// A compiled pattern; immutable, any number of threads may match with it.
class Regex {
 public:
  /// Compiles PCRE2 syntax with UTF and Unicode properties. Throws Error(kUser), starting with
  /// `where`, for an invalid pattern and for one that matches the empty string.
  Regex(const std::string& pcre2_pattern, std::string_view where);

 private:
  friend class RegexMatcher;
  Pcre2Code code_;
  std::string where_;
  bool jit_ = false;
};

/// The working memory of matching; one per thread.
class RegexMatcher {
 public:
  RegexMatcher();

  /// Bytes [begin, end) of the subject.
  struct Match {
    std::size_t begin;
    std::size_t end;
  };
  /// The first match at or after byte `start` of `subject`, which must be valid UTF-8. Throws
  /// Error(kUser) when the pattern needs too much time or memory for this text.
  std::optional<Match> find(const Regex& regex, std::string_view subject, std::size_t start);

 private:
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;
};

}  // namespace atl::text
