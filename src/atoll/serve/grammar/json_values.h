#pragma once

// The parts that texts of JSON have in common, as nodes of a grammar.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/serve/grammar/builder.h"

namespace atl::serve::grammar {

/// Makes nodes for JSON (RFC 8259). Whole values have no white space but, if the model likes, one
/// space behind each comma and colon: a text without an end in white space is none.
class JsonValues {
 public:
  explicit JsonValues(GrammarBuilder& builder) : builder_(builder) {}

  /// One character within a string, however it is escaped. Surrogates only as pairs.
  Node character();
  /// A string of `min` to `max` characters (code points), with its quotation marks.
  Node string(std::int64_t min = 0, std::int64_t max = kUnbounded);
  /// A string that is none of `names`.
  Node string_but(const std::vector<std::string>& names);
  /// A string with just this content, escaped as little as may be.
  Node exact_string(std::string_view content);
  /// A character of a set within a string, not escaped unless it must be.
  Node character_of(const CharacterSet& set);
  /// A finite number.
  Node number();
  /// A whole number without an exponent.
  Node integer();
  /// true or false.
  Node boolean();
  Node null() { return builder_.literal("null"); }
  /// An object or an array of any values.
  Node object();
  Node array();
  /// Any value.
  Node value();
  /// `,` and `:`, each with a space or without.
  Node comma() { return with_space(","); }
  Node colon() { return with_space(":"); }
  /// `{...}` around members, or `[...]` around elements: `min` to `max` of them.
  Node list(std::string_view brackets, Node element, std::int64_t min, std::int64_t max);
  /// 0 to 9.
  Node digit();

 private:
  Node with_space(std::string_view mark);
  Node unescaped(const CharacterSet& set);
  // Rules are made when they are first asked for.
  std::optional<Node> find_rule(std::string_view name) const;
  Node begin_rule(std::string name);

  GrammarBuilder& builder_;
  std::map<std::string, Node, std::less<>> rules_;
  std::vector<std::pair<CharacterSet, Node>> escapes_;  // of sets of characters that need them
};

/// `content` as it stands between the quotation marks of a JSON string.
std::string json_escaped(std::string_view content);

/// The grammar of any JSON object.
Grammar json_object_grammar();

}  // namespace atl::serve::grammar
