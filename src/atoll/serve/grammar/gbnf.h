#pragma once

#include <string_view>

#include "atoll/serve/grammar/grammar.h"

namespace atl::serve::grammar {

/// The grammar that a text in GBNF describes, the notation of llama.cpp: rules `name ::= ...`, of
/// which `root` is the text; "literals", [classes], `.`, groups, `|`, `? * + {m,n}`, # comments.
/// A rule ends where the next one begins. Throws Error(kUser) with line and column of what is
/// wrong.
Grammar gbnf_grammar(std::string_view text);

}  // namespace atl::serve::grammar
