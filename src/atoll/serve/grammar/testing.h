#pragma once

// What the tests of this folder share.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/serve/batch/request.h"
#include "atoll/serve/grammar/constraint.h"
#include "atoll/serve/grammar/grammar.h"
#include "atoll/text/testing.h"
#include "atoll/text/tokenizer.h"

namespace atl::serve::grammar::testing {

/// One of the tokenizers of text/testdata.
Tokenizer tokenizer_fixture(std::string_view name);

/// Whether a text is one of the grammar's, byte by byte.
bool matches(const Grammar& grammar, std::string_view text);

/// The tokens that a constraint allows.
std::vector<std::int32_t> allowed_tokens(TokenConstraint& constraint, const Tokenizer& tokenizer);

/// Draws a text by the constraint's masks: one of the allowed tokens each time, from the
/// `calm_after`-th on the one that leads to the end soonest by a guess. Nothing if `max_tokens` are
/// not enough. Checks that something is allowed wherever the text is not over.
std::optional<std::string> draw_text(TokenConstraint& constraint, const Tokenizer& tokenizer,
                                     std::int32_t end_token, text::testing::Random& random,
                                     int calm_after = 60, int max_tokens = 2000);

/// The message of the Error(kUser) that reading a form ends with; empty: none.
std::string refusal(const FormatRequest& request);

}  // namespace atl::serve::grammar::testing
