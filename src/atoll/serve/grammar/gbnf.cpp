#include "atoll/serve/grammar/gbnf.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/serve/grammar/builder.h"
#include "atoll/serve/grammar/lowering.h"
#include "atoll/text/utf8.h"

namespace atl::serve::grammar {

namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text), builder_("grammar") {}

  Grammar read() {
    skip_space();
    while (!at_end()) {
      const std::string name = read_name();
      skip_space();
      if (!take("::=")) fail("'::=' behind the name of a rule is missing");
      const Node rule = rule_of(name);
      if (builder_.is_defined(rule)) fail("the rule '" + shortened(name) + "' is there twice");
      builder_.define(rule, read_choice(0));
      skip_space();
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) fail("there is no rule 'root'; name the rule of the whole text so");
    return build_grammar(builder_, root->second);
  }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = at_ - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    throw user_error("grammar, line {}, column {}: {}", line, column, reason);
  }
  std::string shortened(std::string_view name) const {
    return std::string(
        name.substr(0, static_cast<std::size_t>(builder_.limits().max_message_bytes)));
  }

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void skip_space() {
    while (!at_end()) {
      if (peek() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string_view(" \t\r\n").find(peek()) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string read_name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name_character(peek())) ++at_;
    if (at_ == begin) fail("the name of a rule is missing");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Node rule_of(const std::string& name) {
    const auto [found, is_new] = rules_.emplace(name, 0);
    if (is_new) found->second = builder_.declare(shortened(name));
    return found->second;
  }

  Node read_choice(int depth) {
    constexpr int kMaxDepth = 200;
    if (depth > kMaxDepth) fail("groups nest too deep");
    std::vector<Node> alternatives = {read_sequence(depth)};
    while (take("|")) alternatives.push_back(read_sequence(depth));
    return builder_.choice(std::move(alternatives));
  }

  // A name with '::=' behind it is the next rule's.
  bool begins_rule() {
    const std::size_t begin = at_;
    while (!at_end() && is_name_character(peek())) ++at_;
    skip_space();
    const bool result = text_.substr(at_).starts_with("::=");
    at_ = begin;
    return result;
  }

  Node read_sequence(int depth) {
    std::vector<Node> parts;
    skip_space();
    while (!at_end() && peek() != '|' && peek() != ')' && !begins_rule()) {
      Node part = read_part(depth);
      while (const auto bounds = read_bounds()) {
        part = builder_.repeat(part, bounds->first, bounds->second);
      }
      parts.push_back(part);
      skip_space();
    }
    if (depth == 0 && peek() == ')') fail("')' without '('");
    return builder_.sequence(std::move(parts));
  }

  Node read_part(int depth) {
    if (take("\"")) return read_literal();
    if (take("[")) return read_class();
    if (take(".")) return builder_.character(CharacterSet::all());
    if (take("(")) {
      const Node inner = read_choice(depth + 1);
      if (!take(")")) fail("')' is missing");
      return inner;
    }
    if (is_name_character(peek())) return rule_of(read_name());
    if (peek() == '<' || peek() == '!') fail("tokens in a grammar are not supported; write text");
    fail("neither a literal, a class, a group nor the name of a rule");
  }

  Node read_literal() {
    std::string bytes;
    while (!take("\"")) {
      if (at_end()) fail("a literal has no end; '\"' is missing");
      text::append_utf8(read_character(), bytes);
    }
    return builder_.literal(bytes);
  }

  Node read_class() {
    const bool is_negated = take("^");
    std::vector<CharacterRange> ranges;
    while (!take("]")) {
      if (at_end()) fail("a class has no end; ']' is missing");
      CharacterRange range;
      range.first = range.last = read_character();
      if (peek() == '-' && text_.substr(at_).size() > 1 && text_[at_ + 1] != ']') {
        ++at_;
        range.last = read_character();
        if (range.last < range.first) fail("the range of a class ends before it begins");
      }
      ranges.push_back(range);
    }
    const CharacterSet set(std::move(ranges));
    return builder_.character(is_negated ? set.complement() : set);
  }

  char32_t read_character() {
    if (at_end()) fail("a character is missing");
    if (peek() != '\\') {
      const text::Utf8Step step = text::utf8_step(text_.substr(at_));
      if (step.kind != text::Utf8Kind::kValid) fail("not UTF-8");
      const char32_t character = text::decode_utf8(text_.substr(at_, step.size));
      at_ += step.size;
      return character;
    }
    ++at_;
    constexpr std::pair<char, char> kSimple[] = {{'n', '\n'},  {'r', '\r'}, {'t', '\t'},
                                                 {'"', '"'},   {'[', '['},  {']', ']'},
                                                 {'\\', '\\'}, {'-', '-'},  {'^', '^'}};
    for (const auto& [letter, character] : kSimple) {
      if (take({&letter, 1})) return static_cast<char32_t>(character);
    }
    if (take("x")) return read_hex(2);
    if (take("u")) return read_hex(4);
    if (take("U")) return read_hex(8);
    fail("an escape that is none of \\n \\r \\t \\\" \\\\ \\[ \\] \\- \\^ \\x \\u \\U");
  }

  char32_t read_hex(std::size_t digits) {
    std::uint32_t value = 0;
    const std::string_view from = text_.substr(at_, digits);
    const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), value, 16);
    if (from.size() < digits || end != from.data() + digits || error != std::errc()) {
      fail("an escape with too few hexadecimal digits");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) fail("not a character");
    at_ += digits;
    return value;
  }

  std::optional<std::pair<std::int64_t, std::int64_t>> read_bounds() {
    skip_space();
    if (take("?")) return std::pair(0, 1);
    if (take("*")) return std::pair(0, kUnbounded);
    if (take("+")) return std::pair(1, kUnbounded);
    if (!take("{")) return std::nullopt;
    skip_space();
    const std::int64_t min = peek() == ',' ? 0 : read_count();
    std::int64_t max = min;
    skip_space();
    if (take(",")) {
      skip_space();
      max = peek() == '}' ? std::int64_t{kUnbounded} : read_count();
      skip_space();
    }
    if (!take("}")) fail("'}' is missing");
    if (max != kUnbounded && max < min) fail("a repetition of fewer times than its least");
    return std::pair(min, max);
  }

  std::int64_t read_count() {
    std::int32_t count = 0;
    const std::string_view from = text_.substr(at_);
    const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), count);
    if (error != std::errc() || count < 0) fail("a repetition needs a count");
    at_ += static_cast<std::size_t>(end - from.data());
    return count;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  GrammarBuilder builder_;
  std::map<std::string, Node> rules_;
};

}  // namespace

Grammar gbnf_grammar(std::string_view text) {
  return GbnfReader(text).read();
}

}  // namespace atl::serve::grammar
