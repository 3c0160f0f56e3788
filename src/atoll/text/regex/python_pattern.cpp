#include "atoll/text/regex/python_pattern.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/text/regex/regex_compile.h"

// Where Python and PCRE2 read the same pattern differently:
//   \Z         The end of the text against the end or before a last line feed.
//   \v         One character against any vertical space.
//   {,n}       A repeat against literal text (PCRE2 before 10.43).
// These are rewritten. Escapes, groups and classes that only one of them knows are refused.

namespace atl::text {

namespace {

constexpr std::array<std::string_view, 9> kGroups = {"(?:", "(?=",  "(?!",  "(?<=", "(?<!",
                                                     "(?>", "(?P<", "(?P=", "(?#"};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const std::string_view rest = in_.substr(at_);
      if (rest[0] == '\\') {
        escape();
      } else if (rest[0] == '[') {
        char_class();
      } else if (rest.starts_with("(?") || rest.starts_with("(*")) {
        group(rest);
      } else if (rest.starts_with("{,")) {
        out_ += "{0,";
        at_ += 2;
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::size_t size) const {
    throw user_error("{}: \"{}\" at byte {} of the regular expression is not supported: {}", where_,
                     in_.substr(at_, size), at_, in_);
  }

  void copy(std::size_t size) {
    out_ += in_.substr(at_, size);
    at_ += std::min(size, in_.size() - at_);
  }

  void escape() {
    if (at_ + 1 == in_.size()) refuse(1);
    const char c = in_[at_ + 1];
    if (c == 'Z') {
      out_ += "\\z";
      at_ += 2;
    } else if (c == 'v') {
      out_ += "\\x0b";
      at_ += 2;
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 &&
               std::string_view("AbBdDsSwWafnrtx").find(c) == std::string_view::npos) {
      refuse(2);
    } else {
      copy(2);
    }
  }

  void char_class() {
    copy(1);
    if (at_ < in_.size() && in_[at_] == '^') copy(1);
    if (at_ < in_.size() && in_[at_] == ']') copy(1);  // literal, in both
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        escape();
      } else if (in_[at_] == '[') {
        out_ += "\\[";  // Python knows no classes of names inside one
        ++at_;
      } else {
        copy(1);
      }
    }
    if (at_ == in_.size()) refuse(0);
    copy(1);
  }

  void group(std::string_view rest) {
    for (const std::string_view opening : kGroups) {
      if (rest.starts_with(opening)) return copy(opening.size());
    }
    const std::size_t end = rest.find_first_not_of("ims", 2);
    const bool is_flags = end != std::string_view::npos && end > 2 &&
                          (rest[end] == ':' || (rest[end] == ')' && at_ == 0));
    if (!is_flags) refuse(3);
    copy(end + 1);
  }

  std::string_view in_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string out_;
};

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatch>;

// The match, or nothing where there is none.
MatchData match(const pcre2_code* code, std::string_view text, std::uint32_t options,
                std::string_view where) {
  MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
  if (data == nullptr) throw make_error(ErrorKind::kResource, "out of memory for matching");
  const int result = pcre2_match(code, as_code_units(text), text.size(), 0,
                                 PCRE2_ANCHORED | options, data.get(), nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return nullptr;
  if (result < 0) {
    throw user_error("{}: matching \"{}\" gave up: {}; simplify the regular expression", where,
                     text, pcre2_message(result));
  }
  return data;
}

}  // namespace

PythonPattern::PythonPattern(std::string_view pattern, std::string_view where)
    : where_(where), code_(compile_pcre2(Rewriter(pattern, where).run(), 0, where)) {}

bool PythonPattern::matches(std::string_view text) const {
  return match(code_.get(), text, PCRE2_ENDANCHORED, where_) != nullptr;
}

bool PythonPattern::matches_beginning(std::string_view text) const {
  return match(code_.get(), text, 0, where_) != nullptr;
}

std::optional<std::string> PythonPattern::group(std::string_view text,
                                                const std::string& name) const {
  const MatchData data = match(code_.get(), text, 0, where_);
  if (data == nullptr) return std::nullopt;
  const int number = pcre2_substring_number_from_name(code_.get(), as_code_units(name));
  if (number < 0) return std::nullopt;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  const std::size_t begin = bounds[static_cast<std::size_t>(2 * number)];
  const std::size_t end = bounds[static_cast<std::size_t>(2 * number + 1)];
  if (begin == PCRE2_UNSET) return std::nullopt;
  return std::string(text.substr(begin, end - begin));
}

}  // namespace atl::text
