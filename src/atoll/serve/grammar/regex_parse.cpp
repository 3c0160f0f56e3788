#include <optional>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/serve/grammar/regex_tree.h"

namespace atl::serve::grammar {

namespace {

constexpr std::int64_t kMaxCount = 1000000;

CharacterSet digits() {
  return CharacterSet({{'0', '9'}});
}
CharacterSet word_characters() {
  return CharacterSet({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}});
}
// ECMAScript's WhiteSpace and LineTerminator without U+FEFF, which Python's \s lacks.
CharacterSet white_space() {
  return CharacterSet({{'\t', '\r'},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000}});
}
CharacterSet ascii() {
  return CharacterSet({{0, 0x7F}});
}
// What some engine counts as white space, or as no line's part.
CharacterSet line_ends() {
  return CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

// The set of \d and the like. Engines differ in which letters of other scripts are of \w and which
// digits of \d: \W and \D are then of ASCII alone, so that a text matches by each.
std::optional<CharacterSet> class_escape(char32_t letter) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return ascii().without(digits());
    case 'w':
      return word_characters();
    case 'W':
      return ascii().without(word_characters());
    case 's':
      return white_space();
    case 'S':
      return CharacterSet::all().without(
          white_space().joined_with(CharacterSet({{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}})));
    default:
      return std::nullopt;
  }
}

RegexPart character(CharacterSet set) {
  return {.kind = RegexPart::kCharacter, .set = std::move(set)};
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, std::string_view origin)
      : origin_(origin), pattern_(code_points(pattern, origin)) {}

  RegexPart parse() {
    RegexPart result = parse_choice(0);
    if (!at_end()) fail("')' without '('");
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    throw user_error("{}, character {}: {}", origin_, at_ + 1, reason);
  }
  bool at_end() const { return at_ == pattern_.size(); }
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : U'\0';
  }
  bool take(char32_t c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }

  RegexPart parse_choice(int depth) {
    constexpr int kMaxDepth = 100;
    if (depth > kMaxDepth) fail("groups nest too deep");
    RegexPart result{.kind = RegexPart::kChoice, .parts = {parse_sequence(depth)}};
    while (take('|')) result.parts.push_back(parse_sequence(depth));
    return result.parts.size() == 1 ? std::move(result.parts.front()) : result;
  }

  RegexPart parse_sequence(int depth) {
    RegexPart result{.kind = RegexPart::kSequence};
    while (!at_end() && peek() != '|' && peek() != ')') {
      RegexPart part = parse_part(depth);
      if (const auto bounds = parse_quantifier()) {
        if (part.kind == RegexPart::kBegin || part.kind == RegexPart::kEnd) {
          fail("a quantifier behind an anchor");
        }
        RegexPart repeated{.kind = RegexPart::kRepeat, .min = bounds->first, .max = bounds->second};
        repeated.parts.push_back(std::move(part));
        part = std::move(repeated);
      }
      result.parts.push_back(std::move(part));
    }
    return result;
  }

  RegexPart parse_part(int depth) {
    if (take('^')) return {.kind = RegexPart::kBegin};
    if (take('$')) return {.kind = RegexPart::kEnd};
    if (take('.')) return character(CharacterSet::all().without(line_ends()));
    if (take('[')) return parse_class();
    if (take('(')) {
      skip_group_start();
      RegexPart inner = parse_choice(depth + 1);
      if (!take(')')) fail("')' is missing");
      return inner;
    }
    if (take('\\')) return character(parse_escape(false));
    for (const char32_t c : {U'*', U'+', U'?'}) {
      if (peek() == c) fail("a quantifier with nothing before it");
    }
    const char32_t c = pattern_[at_++];
    return character(CharacterSet({{c, c}}));
  }

  void skip_group_start() {
    if (!take('?')) return;
    if (take(':')) return;
    take('P');
    if (peek() == '<' && peek(1) != '=' && peek(1) != '!') {
      while (!at_end() && peek() != '>') ++at_;
      if (!take('>')) fail("the name of a group has no end");
      return;
    }
    if (peek() == '=' || peek() == '!' || peek() == '<') fail("lookaround is not supported");
    fail("flags, conditions and atomic groups are not supported");
  }

  CharacterSet parse_escape(bool in_class) {
    if (at_end()) fail("a backslash at the end");
    const char32_t letter = pattern_[at_++];
    if (auto set = class_escape(letter)) return *std::move(set);
    const char32_t c = parse_character_escape(letter, in_class);
    return CharacterSet({{c, c}});
  }

  char32_t parse_character_escape(char32_t letter, bool in_class) {
    constexpr std::pair<char, char> kControls[] = {
        {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}};
    for (const auto& [name, c] : kControls) {
      if (letter == static_cast<char32_t>(name)) return static_cast<char32_t>(c);
    }
    if (letter == 'b' && in_class) return '\b';
    if (letter == '0' && (peek() < '0' || peek() > '9')) return 0;
    if (letter == 'x') return parse_hex(2);
    if (letter == 'u') return parse_unicode();
    if (letter == 'b' || letter == 'B') fail("word boundaries are not supported");
    if (letter >= '0' && letter <= '9') fail("backreferences are not supported");
    if (letter == 'k') fail("backreferences are not supported");
    if (letter == 'p' || letter == 'P') fail("Unicode properties are not supported");
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (is_letter) fail("an escape that is not supported");
    return letter;
  }

  char32_t parse_unicode() {
    if (take('{')) {
      std::size_t digits = 0;
      while (peek(digits) != '}' && at_ + digits < pattern_.size()) ++digits;
      if (digits == 0 || digits > 6) fail("an escape with no or too many hexadecimal digits");
      const char32_t c = parse_hex(digits);
      if (!take('}')) fail("'}' is missing");
      return c;
    }
    const char32_t first = parse_hex_value(4);
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || !take('\\') || !take('u')) fail("half a surrogate pair");
    const char32_t second = parse_hex_value(4);
    if (second < 0xDC00 || second > 0xDFFF) fail("half a surrogate pair");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  char32_t parse_hex(std::size_t digits) {
    const char32_t value = parse_hex_value(digits);
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) fail("not a character");
    return value;
  }
  char32_t parse_hex_value(std::size_t digits) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char32_t c = peek();
      const char32_t digit = c >= '0' && c <= '9'   ? c - '0'
                             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                    : 16;
      if (at_end() || digit == 16) fail("an escape with too few hexadecimal digits");
      value = 16 * value + digit;
      ++at_;
    }
    return value;
  }

  // A bracket right behind the first is a member for some engines, the end for others.
  RegexPart parse_class() {
    const bool is_negated = take('^');
    if (peek() == ']') fail("a class without a member; escape the bracket");
    std::vector<CharacterRange> ranges;
    while (!take(']')) {
      if (at_end()) fail("a class has no end; ']' is missing");
      const CharacterSet first = parse_member();
      const bool is_range = peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size();
      if (!is_range) {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
        continue;
      }
      ++at_;
      const CharacterSet last = parse_member();
      if (!is_one(first) || !is_one(last)) fail("a range between classes");
      ranges.push_back({first.ranges().front().first, last.ranges().front().first});
      if (ranges.back().last < ranges.back().first) fail("a range that ends before it begins");
    }
    const CharacterSet set(std::move(ranges));
    return character(is_negated ? set.complement() : set);
  }
  CharacterSet parse_member() {
    if (take('\\')) return parse_escape(true);
    if (peek() == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '=')) {
      fail("POSIX classes are not supported");
    }
    if (at_end()) fail("a class has no end; ']' is missing");
    const char32_t c = pattern_[at_++];
    return CharacterSet({{c, c}});
  }
  static bool is_one(const CharacterSet& set) {
    return set.ranges().size() == 1 && set.ranges().front().first == set.ranges().front().last;
  }

  std::optional<std::pair<std::int64_t, std::int64_t>> parse_quantifier() {
    std::optional<std::pair<std::int64_t, std::int64_t>> bounds;
    if (take('*')) {
      bounds = {0, kUnbounded};
    } else if (take('+')) {
      bounds = {1, kUnbounded};
    } else if (take('?')) {
      bounds = {0, 1};
    } else if (peek() == '{') {
      bounds = parse_bounds();
    }
    if (!bounds) return bounds;
    take('?');
    if (peek() == '+') fail("possessive quantifiers are not supported");
    if (peek() == '*' || peek() == '?') fail("a quantifier behind a quantifier");
    return bounds;
  }

  // A brace that begins no bounds is a character.
  std::optional<std::pair<std::int64_t, std::int64_t>> parse_bounds() {
    const std::size_t begin = at_++;
    const auto min = parse_count();
    auto max = min;
    if (min && take(',')) {
      max = parse_count();
      if (!max) max = kUnbounded;
    }
    if (!min || !take('}')) {
      at_ = begin;
      return std::nullopt;
    }
    if (*max != kUnbounded && *max < *min) fail("bounds of which the second is less");
    return std::pair(*min, *max);
  }
  std::optional<std::int64_t> parse_count() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    std::int64_t count = 0;
    while (peek() >= '0' && peek() <= '9') {
      count = 10 * count + static_cast<std::int64_t>(pattern_[at_++] - '0');
      if (count > kMaxCount) fail("a bound that is too large");
    }
    return count;
  }

  std::string_view origin_;
  std::vector<char32_t> pattern_;
  std::size_t at_ = 0;
};

}  // namespace

RegexPart parse_regex(std::string_view pattern, std::string_view origin) {
  return RegexParser(pattern, origin).parse();
}

}  // namespace atl::serve::grammar
