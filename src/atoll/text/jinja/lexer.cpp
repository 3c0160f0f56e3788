#include "atoll/text/jinja/lexer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "atoll/base/error.h"
#include "atoll/text/jinja/text.h"
#include "atoll/text/utf8.h"

namespace atl::text::jinja {

namespace {

constexpr std::size_t kNone = std::string_view::npos;

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(std::string_view character) {
  const char32_t c = code_point(character);
  return c == '_' || is_alpha(c) || is_digit(c);
}

// Lines end with \n only, and the one that ends the template does not count.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, std::string_view origin)
      : source_(std::move(source)), origin_(origin) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_until_tag();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw user_error("{}: line {}: {}", origin_, line_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool starts(std::string_view what) const { return rest().starts_with(what); }
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
    line_starting_ = bytes > 0 ? source_[at_ - 1] == '\n' : line_starting_;
  }
  void skip_space() {
    const std::string_view all = rest();
    advance(all.size() - strip(all, Ends::kLeft).size());
  }

  // The text before a tag that begins with `sign` ('-', '+' or none of them).
  std::string_view trimmed(std::string_view text, char sign, bool is_print) const {
    if (sign == '-') return strip(text, Ends::kRight);
    if (sign == '+' || is_print) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == kNone ? 0 : newline + 1;
    const bool at_line_start = begin > 0 || line_starting_;
    return at_line_start && strip(text.substr(begin), Ends::kLeft).empty() ? text.substr(0, begin)
                                                                           : text;
  }

  void push_text(std::string_view text) {
    if (!text.empty()) push(TokenKind::kText, std::string(text));
  }

  void text_until_tag() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == kNone || tag + 1 >= source_.size()) {
        push_text(rest());
        advance(source_.size() - at_);
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    push_text(trimmed(rest().substr(0, tag - at_), sign, kind == '{'));
    advance(tag - at_);
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') {
      comment();
    } else if (kind == '%' && raw_begins()) {
      raw();
    } else {
      push(kind == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
      expression(kind == '{');
    }
  }

  // After a block or comment: `-` eats white space, `+` nothing, none of them one newline.
  void after_end(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && starts("\n")) {
      advance(1);
    }
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == kNone) fail("a comment without its end \"#}}\"");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_end(sign);
  }

  // `{% raw %}`, whose end eats no newline after it.
  bool raw_begins() {
    std::string_view all = strip(rest(), Ends::kLeft);
    if (!all.starts_with("raw")) return false;
    all = strip(all.substr(3), Ends::kLeft);
    const bool minus = all.starts_with("-%}");
    if (!minus && !all.starts_with("%}")) return false;
    advance(rest().size() - all.size() + (minus ? 3 : 2));
    if (minus) skip_space();
    return true;
  }

  void raw() {
    for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != kNone; ++tag) {
      std::string_view all = std::string_view(source_).substr(tag + 2);
      const char sign = all.empty() ? '\0' : all[0];
      if (sign == '-' || sign == '+') all.remove_prefix(1);
      all = strip(all, Ends::kLeft);
      if (!all.starts_with("endraw")) continue;
      all = strip(all.substr(6), Ends::kLeft);
      const char end_sign = all.empty() ? '\0' : all[0];
      if (end_sign == '-' || end_sign == '+') all.remove_prefix(1);
      if (!all.starts_with("%}")) continue;
      push_text(trimmed(rest().substr(0, tag - at_), sign, false));
      advance(source_.size() - all.size() + 2 - at_);
      after_end(end_sign);
      return;
    }
    fail("{{% raw %}} without its {{% endraw %}}");
  }

  // The tokens up to the end of the tag.
  void expression(bool is_print) {
    std::string open;  // brackets that wait for their partner
    while (true) {
      skip_space();
      if (at_ >= source_.size()) fail("the template ends inside a tag");
      if (open.empty() && tag_ends(is_print)) return;
      const char c = source_[at_];
      if (is_digit_char(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string_literal();
      } else if (is_word(characters(rest().substr(0, 4)).front())) {
        name();
      } else {
        operator_token(open);
      }
    }
  }

  bool tag_ends(bool is_print) {
    const std::string_view end = is_print ? "}}" : "%}";
    char sign = source_[at_];
    const bool has_sign =
        (sign == '-' || (sign == '+' && !is_print)) && rest().substr(1).starts_with(end);
    if (!has_sign && !starts(end)) return false;
    if (!has_sign) sign = '\0';
    push(is_print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
    advance(has_sign ? 3 : 2);
    if (!is_print) {
      after_end(sign);
    } else if (sign == '-') {
      skip_space();
    }
    return true;
  }

  // Digits with single underscores between them; how many bytes.
  std::size_t digits(std::string_view text) const {
    std::size_t size = 0;
    while (size < text.size() &&
           (is_digit_char(text[size]) || (text[size] == '_' && size > 0 && size + 1 < text.size() &&
                                          is_digit_char(text[size + 1])))) {
      ++size;
    }
    return size;
  }

  void number() {
    const std::string_view all = rest();
    const bool after_dot = !tokens_.empty() && at_ > 0 && source_[at_ - 1] == '.';
    std::size_t size = digits(all);
    bool is_float = false;
    if (!after_dot) {
      if (size + 1 < all.size() && all[size] == '.' && is_digit_char(all[size + 1])) {
        size += 1 + digits(all.substr(size + 1));
        is_float = true;
      }
      if (size < all.size() && (all[size] == 'e' || all[size] == 'E')) {
        std::size_t exponent = size + 1;
        if (exponent < all.size() && (all[exponent] == '+' || all[exponent] == '-')) ++exponent;
        if (const std::size_t count = digits(all.substr(std::min(exponent, all.size())))) {
          size = exponent + count;
          is_float = true;
        }
      }
    }
    if (!is_float && size == 1 && all[0] == '0' && all.size() > 2 &&
        std::string_view("bBoOxX").find(all[1]) != kNone) {
      fail("numbers with a base (\"{}\") are not supported; write them in decimal",
           all.substr(0, 3));
    }
    std::string text(all.substr(0, size));
    std::erase(text, '_');
    const bool zeros = text.find_first_not_of('0') == kNone;
    if (!is_float && text[0] == '0' && text.size() > 1 && !zeros) {
      fail("a number cannot begin with 0: \"{}\"", text);
    }
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    advance(size);
  }

  void name() {
    std::size_t size = 0;
    for (std::string_view all = rest(); size < all.size();) {
      const std::string_view character = characters(all.substr(size, 4)).front();
      if (!is_word(character)) break;
      size += character.size();
    }
    push(TokenKind::kName, source_.substr(at_, size));
    advance(size);
  }

  void operator_token(std::string& open) {
    static constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    std::string text(rest().substr(0, 2));
    if (std::find(kLong.begin(), kLong.end(), text) == kLong.end()) text.resize(1);
    if (kShort.find(text[0]) == kNone && text.size() == 1) {
      fail("unexpected character \"{}\" in an expression", characters(rest().substr(0, 4)).front());
    }
    const char c = text[0];
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail("unexpected \"{}\"", c);
      open.pop_back();
    }
    push(TokenKind::kOperator, text);
    advance(text.size());
  }

  void string_literal() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string without its closing {}", quote);
    push(TokenKind::kString, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  // Python's unicode-escape; an unknown escape keeps its backslash.
  std::string unescaped(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kLetters = "abfnrtv\\'\"";
      constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const auto at = kLetters.find(c); at != kNone) {
        out += kMeanings[at];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += escaped_code_point(text.substr(i + 1), c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, out);
      } else if (c >= '0' && c <= '7') {
        std::size_t size = 1;
        while (size < 3 && i + size < text.size() && text[i + size] >= '0' && text[i + size] <= '7')
          ++size;
        i += escaped_code_point(text.substr(i), size, 8, out) - 1;
      } else if (c == 'N') {
        fail("escapes by name (\\N{{...}}) are not supported; write \\uXXXX");
      } else if ((c & 0x80) != 0) {
        fail("a backslash before \"{}\" means nothing; leave it out",
             characters(text.substr(i, 4)).front());
      } else if (c != '\n') {
        (out += '\\') += c;
      }
    }
    return out;
  }

  std::size_t escaped_code_point(std::string_view text, std::size_t size, int base,
                                 std::string& out) const {
    const std::string digits(text.substr(0, size));
    std::size_t used = 0;
    unsigned long value = 0;
    try {
      value = std::stoul(digits, &used, base);
    } catch (const std::logic_error&) {
      used = 0;
    }
    if (used != size || digits.size() != size || digits[0] == '+' || digits[0] == '-') {
      fail("a cut-off escape in a string");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail("the escape of {:#x} in a string, which is no character", value);
    }
    append_utf8(static_cast<char32_t>(value), out);
    return size;
  }

  std::string source_;
  std::string_view origin_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view origin) {
  if (const std::size_t valid = valid_utf8_prefix(source); valid != source.size()) {
    throw user_error("{}: byte {} is not UTF-8; save the template as UTF-8", origin, valid);
  }
  return Lexer(normalized(source), origin).run();
}

}  // namespace atl::text::jinja
