#include "atoll/serve/grammar/json_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "atoll/base/error.h"
#include "atoll/serve/grammar/lowering.h"
#include "atoll/text/utf8.h"

namespace atl::serve::grammar {

namespace {

constexpr char32_t kFirstPrintable = 0x20;

// What a string may hold as it is.
CharacterSet plain_characters() {
  return CharacterSet({{kFirstPrintable, 0x10FFFF}}).without(CharacterSet::of("\"\\"));
}

std::string escape(char32_t character) {
  switch (character) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character));
  }
}

ByteSet bytes_of(std::string_view characters) {
  ByteSet set;
  for (const char c : characters) set.set(static_cast<unsigned char>(c));
  return set;
}

// A tree of code points of names.
struct NameTree {
  std::map<char32_t, NameTree> next;
  bool is_name = false;
};

}  // namespace

std::string json_escaped(std::string_view content) {
  std::string result;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < kFirstPrintable || c == '"' || c == '\\' ? escape(byte) : std::string(1, c);
  }
  return result;
}

std::optional<Node> JsonValues::find_rule(std::string_view name) const {
  const auto found = rules_.find(name);
  if (found == rules_.end()) return std::nullopt;
  return found->second;
}

Node JsonValues::begin_rule(std::string name) {
  const Node node = builder_.declare(name);
  rules_.emplace(std::move(name), node);
  return node;
}

Node JsonValues::with_space(std::string_view mark) {
  return builder_.sequence({builder_.literal(mark), builder_.optional(builder_.literal(" "))});
}

Node JsonValues::digit() {
  return builder_.bytes(bytes_of("0123456789"));
}

Node JsonValues::character() {
  if (const auto rule = find_rule("character")) return *rule;
  const Node rule = begin_rule("character");
  const Node hex = builder_.bytes(bytes_of("0123456789abcdefABCDEF"));
  const auto first = [&](std::string_view digits) { return builder_.bytes(bytes_of(digits)); };
  const Node not_d = first("0123456789abcefABCEF");
  const Node d = first("dD");
  const Node below_surrogates = builder_.sequence({d, first("01234567"), hex, hex});
  const Node high = builder_.sequence({d, first("89abAB"), hex, hex});
  const Node low = builder_.sequence({d, first("cdefCDEF"), hex, hex});
  builder_.define(
      rule,
      builder_.choice(
          {builder_.character(plain_characters()),
           builder_.sequence(
               {builder_.literal("\\"),
                builder_.choice({builder_.bytes(bytes_of("\"\\/bfnrt")),
                                 builder_.sequence({builder_.literal("u"), not_d, hex, hex, hex}),
                                 builder_.sequence({builder_.literal("u"), below_surrogates}),
                                 builder_.sequence({builder_.literal("u"), high,
                                                    builder_.literal("\\u"), low})})})}));
  return rule;
}

Node JsonValues::string(std::int64_t min, std::int64_t max) {
  const std::string name = fmt::format("string {} {}", min, max);
  if (const auto rule = find_rule(name)) return *rule;
  const Node rule = begin_rule(name);
  const Node quote = builder_.literal("\"");
  builder_.define(rule, builder_.sequence({quote, builder_.repeat(character(), min, max), quote}));
  return rule;
}

Node JsonValues::exact_string(std::string_view content) {
  return builder_.literal('"' + json_escaped(content) + '"');
}

Node JsonValues::unescaped(const CharacterSet& set) {
  const CharacterSet escaped = plain_characters().complement();
  return builder_.character(set.without(escaped));
}

Node JsonValues::character_of(const CharacterSet& set) {
  const Node plain = unescaped(set);
  const CharacterSet to_escape = set.without(plain_characters());
  if (to_escape.empty()) return plain;
  const auto found = std::find_if(escapes_.begin(), escapes_.end(),
                                  [&](const auto& known) { return known.first == to_escape; });
  if (found != escapes_.end()) return builder_.choice({plain, found->second});
  std::vector<std::string> texts;
  for (const CharacterRange& range : to_escape.ranges()) {
    for (char32_t character = range.first; character <= range.last; ++character) {
      texts.push_back(escape(character));
    }
  }
  const Node escaped = builder_.one_of(std::move(texts));
  escapes_.emplace_back(to_escape, escaped);
  return builder_.choice({plain, escaped});
}

// Nothing is escaped, so that a name has one spelling. What leaves the names' tree goes on freely.
Node JsonValues::string_but(const std::vector<std::string>& names) {
  NameTree root;
  for (const std::string& name : names) {
    constexpr std::size_t kMaxNameBytes = 1000;
    if (name.size() > kMaxNameBytes) {
      throw user_error("{}: the name of a property of {} bytes; {} are the most", builder_.origin(),
                       name.size(), kMaxNameBytes);
    }
    NameTree* at = &root;
    for (const char32_t character : code_points(name, builder_.origin())) {
      at = &at->next[character];
    }
    at->is_name = true;
  }
  const Node quote = builder_.literal("\"");
  const Node free = builder_.declare("characters");
  builder_.define(free, builder_.repeat(unescaped(CharacterSet::all()), 0, kUnbounded));
  const auto node_of = [&](const auto& self, const NameTree& tree) -> Node {
    std::vector<Node> alternatives;
    if (!tree.is_name) alternatives.push_back(builder_.empty());
    std::vector<CharacterRange> followed;
    for (const auto& [character, next] : tree.next) {
      followed.push_back({character, character});
      alternatives.push_back(
          builder_.sequence({unescaped(CharacterSet({{character, character}})), self(self, next)}));
    }
    const CharacterSet other = CharacterSet::all().without(CharacterSet(followed));
    alternatives.push_back(builder_.sequence({unescaped(other), free}));
    return builder_.choice(std::move(alternatives));
  };
  return builder_.sequence({quote, node_of(node_of, root), quote});
}

// As many digits as a double tells apart; with the exponent it stays finite.
Node JsonValues::number() {
  if (const auto rule = find_rule("number")) return *rule;
  const Node rule = begin_rule("number");
  constexpr std::int64_t kMaxDigits = 17;
  const Node fraction =
      builder_.sequence({builder_.literal("."), builder_.repeat(digit(), 1, kMaxDigits)});
  const Node exponent = builder_.sequence({builder_.bytes(bytes_of("eE")),
                                           builder_.optional(builder_.bytes(bytes_of("+-"))),
                                           builder_.repeat(digit(), 1, 2)});
  builder_.define(rule, builder_.sequence(
                            {integer(), builder_.optional(fraction), builder_.optional(exponent)}));
  return rule;
}

// Below 10^18, so that it fits in 64 bits.
Node JsonValues::integer() {
  if (const auto rule = find_rule("integer")) return *rule;
  const Node rule = begin_rule("integer");
  constexpr std::int64_t kMaxDigits = 17;  // behind the first
  const Node digits = builder_.sequence(
      {builder_.bytes(bytes_of("123456789")), builder_.repeat(digit(), 0, kMaxDigits)});
  builder_.define(rule, builder_.sequence({builder_.optional(builder_.literal("-")),
                                           builder_.choice({builder_.literal("0"), digits})}));
  return rule;
}

Node JsonValues::boolean() {
  return builder_.choice({builder_.literal("true"), builder_.literal("false")});
}

Node JsonValues::list(std::string_view brackets, Node element, std::int64_t min, std::int64_t max) {
  const Node open = builder_.literal(brackets.substr(0, 1));
  const Node close = builder_.literal(brackets.substr(1, 1));
  if (max == 0) return builder_.sequence({open, close});
  const std::int64_t more = max == kUnbounded ? kUnbounded : max - 1;
  const Node rest = builder_.repeat(builder_.sequence({comma(), element}),
                                    std::max<std::int64_t>(min - 1, 0), more);
  Node content = builder_.sequence({element, rest});
  if (min == 0) content = builder_.optional(content);
  return builder_.sequence({open, content, close});
}

Node JsonValues::object() {
  if (const auto rule = find_rule("object")) return *rule;
  const Node rule = begin_rule("object");
  const Node member = builder_.sequence({string(), colon(), value()});
  builder_.define(rule, list("{}", member, 0, kUnbounded));
  return rule;
}

Node JsonValues::array() {
  if (const auto rule = find_rule("array")) return *rule;
  const Node rule = begin_rule("array");
  builder_.define(rule, list("[]", value(), 0, kUnbounded));
  return rule;
}

Node JsonValues::value() {
  if (const auto rule = find_rule("value")) return *rule;
  const Node rule = begin_rule("value");
  builder_.define(rule,
                  builder_.choice({string(), number(), object(), array(), boolean(), null()}));
  return rule;
}

Grammar json_object_grammar() {
  GrammarBuilder builder("JSON object");
  JsonValues values(builder);
  return build_grammar(builder, values.object());
}

}  // namespace atl::serve::grammar
