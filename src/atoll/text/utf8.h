#pragma once

// UTF-8 as Unicode 15, table 3-7 defines it: no overlong forms, no surrogates, nothing above
// U+10FFFF.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace atl::text {

/// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// What stands at the start of some bytes.
enum class Utf8Kind {
  kValid,       ///< A whole character.
  kInvalid,     ///< Bytes that cannot be part of a character, whatever follows.
  kIncomplete,  ///< The start of a character, cut off by the end of the bytes.
};

/// The first character, or maximal invalid part, of some bytes.
struct Utf8Step {
  std::size_t size;  ///< In bytes, at least 1.
  Utf8Kind kind;
};

/// Looks at the start of `bytes`, which must not be empty.
Utf8Step utf8_step(std::string_view bytes);

/// The length in bytes of the longest valid UTF-8 at the start of `bytes`.
std::size_t valid_utf8_prefix(std::string_view bytes);

/// The number of bytes at the start of `bytes` before a valid character begins.
std::size_t invalid_utf8_prefix(std::string_view bytes);

/// Appends the UTF-8 of a code point (a Unicode scalar value) to `out`.
void append_utf8(char32_t code_point, std::string& out);

/// The code point of the character that is the whole of `bytes` (valid UTF-8, one character).
char32_t decode_utf8(std::string_view bytes);

/// True for the Unicode property White_Space.
bool is_white_space(char32_t code_point);

/// The number of bytes of white space at the start of `text`.
std::size_t leading_white_space(std::string_view text);

/// The byte at which the white space that ends `text` begins, not before `limit`.
std::size_t trailing_white_space(std::string_view text, std::size_t limit);

}  // namespace atl::text
