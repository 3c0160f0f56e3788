#pragma once

// A regular expression as a tree, apart from how its characters are spelled in a text.

#include <cstdint>
#include <string_view>
#include <vector>

#include "atoll/serve/grammar/builder.h"
#include "atoll/serve/grammar/characters.h"

namespace atl::serve::grammar {

/// A part of a regular expression.
struct RegexPart {
  enum Kind : std::uint8_t {
    kCharacter,  ///< one of `set`
    kSequence,   ///< `parts` one after another
    kChoice,     ///< one of `parts`
    kRepeat,     ///< parts.front(), `min` to `max` times
    kBegin,      ///< ^
    kEnd,        ///< $
  };
  Kind kind = kSequence;
  std::int64_t min = 0, max = 0;
  CharacterSet set = {};
  std::vector<RegexPart> parts = {};
};

/// Reads the subset that ECMAScript, Python and PCRE agree about: literals, classes, \d \w \s and
/// their opposites, `.`, groups (captured or not, named or not), `|`, quantifiers (greedy or lazy:
/// for whole texts they are the same), ^ and $ at the ends. Throws Error(kUser) that begins with
/// `origin`, with the position and name of what is wrong or not supported.
RegexPart parse_regex(std::string_view pattern, std::string_view origin);

/// Makes anchors explicit: the result has none and stands for whole texts. `is_search`: the texts
/// in which a match begins and ends anywhere unless anchored, as a JSON schema's `pattern`. Throws
/// Error(kUser) for an anchor inside.
RegexPart resolve_anchors(RegexPart part, bool is_search, std::string_view origin);

/// How many characters the texts of a part without anchors have.
struct RegexLength {
  std::int64_t min = 0;
  std::int64_t max = 0;  ///< kUnbounded: no limit
};
RegexLength regex_length(const RegexPart& part);

/// Narrows a part without anchors to its texts of `min` to `max` characters. False, with nothing
/// changed, where no change of one quantifier does that.
bool limit_regex(RegexPart& part, std::int64_t min, std::int64_t max);

/// The grammar's node of a part without anchors; `character_of` makes a node of a set.
template <typename CharacterOf>
Node regex_node(const RegexPart& part, GrammarBuilder& builder, const CharacterOf& character_of) {
  if (part.kind == RegexPart::kCharacter) return character_of(part.set);
  std::vector<Node> parts;
  for (const RegexPart& inner : part.parts) {
    parts.push_back(regex_node(inner, builder, character_of));
  }
  if (part.kind == RegexPart::kRepeat) return builder.repeat(parts.front(), part.min, part.max);
  if (part.kind == RegexPart::kChoice) return builder.choice(std::move(parts));
  return builder.sequence(std::move(parts));
}

}  // namespace atl::serve::grammar
