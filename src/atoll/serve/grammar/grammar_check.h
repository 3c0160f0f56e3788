#pragma once

#include <string>
#include <vector>

#include "atoll/serve/grammar/grammar.h"

namespace atl::serve::grammar {

/// Establishes what Grammar promises: drops what derives no text, finds nullable rules. Throws
/// Error(kUser) that begins with `origin` and names the rule, where that is not possible.
void check_grammar(Grammar& grammar, const std::vector<std::string>& rule_names,
                   const std::string& origin);

}  // namespace atl::serve::grammar
