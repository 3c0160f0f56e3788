#include <algorithm>
#include <array>
#include <cctype>

#include "atoll/base/error.h"
#include "atoll/text/regex/regex.h"

// Where Oniguruma and PCRE2 read the same pattern differently:
//   \s         PCRE2 counts U+180E as a space; Unicode (and Oniguruma) have not since version 6.3.
//   \p{Han}    PCRE2 from 10.40 means Script_Extensions; Oniguruma means Script.
//   \v         One character against any vertical space.
//   {,n}       A repeat against literal text (PCRE2 before 10.43).
// These are rewritten. The next are refused, never guessed:
//   {n,m}+     A repeated repeat against a possessive one.
//   {n}?       An optional repeat against a lazy one.
//   ^ $ (?m)   Ruby's meanings against Perl's.
//   [a[b]&&c]  Set arithmetic against literal text.

namespace atl::text {

namespace {

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029})"
    R"(\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNonSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

constexpr std::array<std::string_view, 37> kGeneralCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs", "Cn"};

constexpr std::array<std::string_view, 7> kGroupOpenings = {"(?:",  "(?=",  "(?!", "(?>",
                                                            "(?<=", "(?<!", "(?i:"};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      switch (in_[at_]) {
        case '\\':
          escape(/*in_class=*/false);
          break;
        case '[':
          char_class();
          break;
        case '(':
          group();
          break;
        case '{':
          interval();
          break;
        case '^':
        case '$':
          refuse("an anchor", 1);
        default:
          copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what, std::size_t size) const {
    throw user_error("{}: {} \"{}\" at byte {} of the regular expression is not supported: {}",
                     where_, what, in_.substr(at_, size), at_, in_);
  }

  void copy(std::size_t size) {
    out_ += in_.substr(at_, size);
    at_ += size;
  }

  void escape(bool in_class) {
    if (at_ + 1 == in_.size()) refuse("a backslash at the end", 1);
    const char c = in_[at_ + 1];
    if (c == 's' || c == 'S') {
      const std::string_view set = c == 's' ? kSpaces : kNonSpaces;
      out_ += in_class ? std::string(set) : fmt::format("[{}]", set);
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (c == 'v') {
      out_ += "\\x{b}";
      at_ += 2;
    } else if (c == 'u') {
      code_point(2, 4);
    } else if (c == 'x') {
      hexadecimal();
    } else if (std::string_view("dDnrtf").find(c) != std::string_view::npos ||
               std::ispunct(static_cast<unsigned char>(c)) != 0 || c == ' ') {
      copy(2);
    } else {
      refuse("the escape", 2);
    }
  }

  // \x{...} is a code point in both; \xHH is a byte in Oniguruma, so only ASCII means the same.
  void hexadecimal() {
    if (in_.substr(at_, 3) == "\\x{") {
      const std::size_t close = in_.find('}', at_);
      if (close == std::string_view::npos) refuse("an unfinished escape", 3);
      copy(close + 1 - at_);
    } else if (at_ + 2 < in_.size() && in_[at_ + 2] <= '7') {
      code_point(2, 2);
    } else {
      refuse("the escape", 4);
    }
  }

  // An escape of exactly `num_digits` hexadecimal digits after `skip` characters.
  void code_point(std::size_t skip, std::size_t num_digits) {
    const std::string_view digits = in_.substr(at_ + skip, num_digits);
    const bool valid =
        digits.size() == num_digits && std::all_of(digits.begin(), digits.end(), [](char c) {
          return std::isxdigit(static_cast<unsigned char>(c)) != 0;
        });
    if (!valid) refuse("the escape", skip + num_digits);
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += skip + num_digits;
  }

  void property() {
    const std::size_t close = in_.find('}', at_);
    if (in_.substr(at_ + 2, 1) != "{" || close == std::string_view::npos) {
      refuse("a property without braces", 3);
    }
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const bool category = std::find(kGeneralCategories.begin(), kGeneralCategories.end(), name) !=
                          kGeneralCategories.end();
    out_ += fmt::format("\\{}{{{}{}{}}}", in_[at_ + 1], negated ? "^" : "",
                        category ? "" : "sc:", name);
    at_ = close + 1;
  }

  void char_class() {
    copy(1);
    if (in_.substr(at_, 1) == "^") copy(1);
    if (in_.substr(at_, 1) == "]") refuse("a ']' that opens a class", 1);
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        escape(/*in_class=*/true);
      } else if (in_[at_] == '[') {
        refuse("a class inside a class", 2);
      } else if (in_.substr(at_, 2) == "&&") {
        refuse("a class intersection", 2);
      } else {
        copy(1);
      }
    }
    if (at_ < in_.size()) copy(1);  // otherwise PCRE2 reports the missing ']'
  }

  void group() {
    if (in_.substr(at_, 2) == "(*") refuse("the group", 2);
    if (in_.substr(at_, 2) != "(?") return copy(1);
    for (const std::string_view opening : kGroupOpenings) {
      if (in_.substr(at_, opening.size()) == opening) return copy(opening.size());
    }
    refuse("the group", 4);
  }

  void interval() {
    std::size_t end = at_ + 1;
    std::size_t commas = 0;
    while (end < in_.size() &&
           (std::isdigit(static_cast<unsigned char>(in_[end])) != 0 || in_[end] == ',')) {
      commas += in_[end++] == ',' ? 1 : 0;
    }
    const std::string_view bounds = in_.substr(at_ + 1, end - at_ - 1);
    if (end == in_.size() || in_[end] != '}' || commas > 1 || bounds.size() == commas) {
      refuse("a brace that is not a repeat", 1);
    }
    const std::string_view next = in_.substr(end + 1, 1);
    if (next == "+" || (next == "?" && commas == 0)) refuse("the repeat", end + 2 - at_);
    out_ += fmt::format("{{{}{}}}", bounds.starts_with(',') ? "0" : "", bounds);
    at_ = end + 1;
  }

  std::string_view in_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string to_pcre2_syntax(std::string_view pattern, std::string_view where) {
  return Rewriter(pattern, where).run();
}

std::string quote_for_pcre2(std::string_view literal) {
  std::string quoted;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted;
}

}  // namespace atl::text
