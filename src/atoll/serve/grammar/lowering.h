#pragma once

#include "atoll/serve/grammar/builder.h"
#include "atoll/serve/grammar/grammar.h"

namespace atl::serve::grammar {

/// The grammar of a builder's node. Throws Error(kUser) for a rule that has no content, that is
/// left-recursive, or when the node derives no text.
Grammar build_grammar(const GrammarBuilder& builder, Node root);

}  // namespace atl::serve::grammar
