#pragma once

// Tokenizers that need no training, for models that start from nothing.

#include <span>
#include <string>
#include <string_view>

#include "atoll/text/tokenizer.h"

namespace atl {

/// A token for each byte, with the byte's value as its id, and <|endoftext|> with the id 256. Its
/// tokenizer.json gives the same ids in Hugging Face's library. `special_tokens` come behind these;
/// Error(kUser) for one that is empty, there twice, or the spelling of a byte.
Tokenizer make_byte_tokenizer(std::span<const std::string> special_tokens = {});

/// A token for each different Unicode character of `texts`, with ids in the order of code points,
/// and no other token: encoding text with another character throws Error(kUser) that names it and
/// its position. (Hugging Face's library, which gives the same ids, drops such characters.) Throws
/// Error(kUser) for texts without any character and for bytes that are not UTF-8, naming the text:
/// by `names`, one a text, if there are any. `special_tokens` come behind the characters, each
/// longer than one; Error(kUser) for others.
Tokenizer make_char_tokenizer(std::span<const std::string_view> texts,
                              std::span<const std::string> names = {},
                              std::span<const std::string> special_tokens = {});

}  // namespace atl
