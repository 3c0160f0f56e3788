#pragma once

// A template cut into tokens, white space control applied: what follows sees no delimiters.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text::jinja {

/// What a token is.
enum class TokenKind : std::uint8_t {
  kText,        ///< Output as it stands.
  kBlockBegin,  ///< {%
  kBlockEnd,    ///< %}
  kPrintBegin,  ///< {{
  kPrintEnd,    ///< }}
  kName,
  kString,  ///< `text` is what the literal means.
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

/// One token and the line it is on, counted from 1.
struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

/// Cuts `source` up as Jinja2 does with trim_blocks and lstrip_blocks. The last token is kEnd.
/// Throws Error(kUser) naming `origin` and the line.
std::vector<Token> tokenize(std::string_view source, std::string_view origin);

}  // namespace atl::text::jinja
