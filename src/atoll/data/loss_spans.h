#pragma once

// From trained bytes of a text to trained tokens.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/text/tokenizer.h"

namespace atl::data {

/// Bytes [first, second) of a text.
using ByteSpan = std::pair<std::size_t, std::size_t>;

/// A conversation as a chat template writes it.
struct RenderedChat {
  std::string text;
  std::vector<ByteSpan> trained;  ///< what the assistant says: ascending, not overlapping
  /// Where special tokens begin that a message spells and that are to be text: bytes, ascending.
  std::vector<std::size_t> literal;
  /// The first special token that a message spells; empty: none does.
  std::string spelled;
};

/// Appends the tokens of `text`, tokenized whole, and a mask byte for each: 1 when it begins inside
/// a trained span. Where normalization changes the text, a span begins behind as many bytes as the
/// tokens of all text before it stand for. `options.literal` are bytes of `text`. Throws
/// Error(kInternal) for spans out of order or range.
void encode_spans(TokenEncoder& encoder, const Tokenizer& tokenizer, std::string_view text,
                  std::span<const ByteSpan> trained, EncodeOptions options,
                  std::vector<std::int32_t>& tokens, std::vector<std::uint8_t>& mask);

}  // namespace atl::data
