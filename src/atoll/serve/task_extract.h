#pragma once

// What of a text counts as the answer.

#include <optional>
#include <string_view>

#include "atoll/text/regex/regex_group.h"

namespace atl::serve {

/// The regular expression that finds the answer in a text.
using AnswerPattern = text::RegexGroup;

/// The part of `text` that is compared: what `pattern` finds in it, or without one (null) all of
/// it; without the white space around it. None where the pattern finds nothing.
std::optional<std::string_view> comparable(std::string_view text, const AnswerPattern* pattern);

}  // namespace atl::serve
