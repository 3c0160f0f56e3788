#pragma once

// GPT-2's spelling of bytes as printable characters, which is how byte-level vocabularies are
// written in JSON: printable Latin-1 stands for itself, the other 68 bytes take U+0100 onwards.
// And SentencePiece's: a token <0xE4> of its own for each byte.

#include <optional>
#include <string>
#include <string_view>

namespace atl::text {

/// The character that spells `byte`: U+0021..U+0143.
char32_t byte_to_char(unsigned char byte);

/// Spells bytes as byte-level characters (" the" -> "Ġthe"), in UTF-8.
std::string to_byte_level(std::string_view bytes);

/// The bytes that valid UTF-8 `spelled` stands for; nothing when a character spells no byte.
std::optional<std::string> from_byte_level(std::string_view spelled);

/// SentencePiece's token for a byte that has no character: "<0xE4>".
std::string byte_token(unsigned char byte);

/// The byte that `token` spells as byte_token does, if it does.
std::optional<unsigned char> byte_of_token(std::string_view token);

}  // namespace atl::text
