#pragma once

// Internal to the parsers of a tokenizer.json.

#include <string_view>

#include "atoll/text/tokenizer_json/tokenizer_json_reader.h"

namespace atl::text {

/// Parses the text of a tokenizer.json. `tables` gets vocabulary, scores and merges, which are
/// nearly all of it; what is returned has an empty object or array in their places, and everything
/// else. Where they are no objects and no arrays they stay where they are. Of a key that is there
/// twice the last counts, if all are well-formed; a token may be in `tables` twice. Throws
/// Error(kDamaged) for what is malformed.
Json read_tokenizer_document(std::string_view text, std::string_view origin, TokenizerSpec& tables);

}  // namespace atl::text
