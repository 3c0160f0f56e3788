#pragma once

// A tokenizer.json with more added tokens than it had.

#include <span>
#include <string>
#include <string_view>

#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// The text of a tokenizer.json with these tokens at the end of its "added_tokens"; all else stays
/// byte for byte. Throws Error(kDamaged) naming `origin` for what is no JSON object.
std::string with_added_tokens(std::string_view json, std::span<const AddedToken> tokens,
                              std::string_view origin);

}  // namespace atl::text
