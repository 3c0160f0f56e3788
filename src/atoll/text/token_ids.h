#pragma once

#include <string_view>

#include "atoll/text/token_index.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// A tokenizer.json whose tokens have the ids that Hugging Face's library gives them, and each
/// token once.
struct SettledSpec {
  TokenizerSpec spec;
  TokenIndex vocab;  ///< The tokens of the model.
};

/// Of a vocabulary token that is there twice the last id counts. An added token has its id in the
/// vocabulary; else the next one behind it, whatever the file says: a warning names `origin` and
/// the token where that differs. Of an added token that is there twice the last flags count, and it
/// is special if one of the two is; one without content does not count.
SettledSpec settle_token_ids(TokenizerSpec spec, std::string_view origin);

}  // namespace atl::text
