#include "atoll/serve/grammar/regex.h"

#include "atoll/serve/grammar/lowering.h"
#include "atoll/serve/grammar/regex_tree.h"

namespace atl::serve::grammar {

Grammar regex_grammar(std::string_view pattern) {
  const std::string_view origin = "regular expression";
  const RegexPart part = resolve_anchors(parse_regex(pattern, origin), false, origin);
  GrammarBuilder builder{std::string(origin)};
  return build_grammar(builder, regex_node(part, builder, [&](const CharacterSet& set) {
                         return builder.character(set);
                       }));
}

}  // namespace atl::serve::grammar
