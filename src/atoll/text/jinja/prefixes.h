#pragma once

// What a template writes of the beginnings of a conversation, all of them in one pass.

#include <cstddef>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/jinja/ast.h"
#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

/// What a template writes of a conversation and its beginnings.
struct PrefixTexts {
  /// A text is the first `shared` bytes of `written`, then `rest`.
  struct Text {
    std::size_t shared = 0;
    std::string rest;
  };
  std::string written;
  std::vector<Text> texts;
};

/// The texts that rendering the first messages alone would give, for each of `counts` (ascending),
/// in the time of one rendering. `variables` has the conversation as the list "messages". Nothing
/// when the template is not a loop over the messages between what does not depend on how many there
/// are, or when it fails: then only rendering each tells.
std::optional<PrefixTexts> render_prefixes(const Tree& tree, std::string_view origin,
                                           const Dict& variables, std::time_t now,
                                           std::span<const std::size_t> counts);

}  // namespace atl::text::jinja
