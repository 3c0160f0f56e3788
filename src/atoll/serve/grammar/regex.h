#pragma once

#include <string_view>

#include "atoll/serve/grammar/grammar.h"

namespace atl::serve::grammar {

/// The grammar of the texts that a regular expression matches as a whole (regex_tree.h says what
/// it may have). Throws Error(kUser) for one that is wrong or not supported.
Grammar regex_grammar(std::string_view pattern);

}  // namespace atl::serve::grammar
