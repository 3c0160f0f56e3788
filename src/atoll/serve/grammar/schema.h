#pragma once

#include <string_view>

#include "atoll/serve/grammar/grammar.h"

namespace atl::serve::grammar {

/// The grammar of the JSON texts that a JSON schema accepts (drafts 4 to 2020-12), or of fewer, but
/// never of others: members come in the schema's order, properties that it does not name come only
/// where `additionalProperties` asks for them, and white space is a space behind `,` and `:` at
/// most. Throws Error(kUser) with the JSON pointer and the name of a keyword that is wrong or that
/// cannot be kept to.
Grammar schema_grammar(std::string_view schema);

}  // namespace atl::serve::grammar
