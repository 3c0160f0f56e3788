#pragma once

#include <cstddef>
#include <span>

namespace atl {

/// What encoding does about special tokens.
struct EncodeOptions {
  /// True: a special token spelled out in the text ("<|endoftext|>") becomes that token. False: it
  /// is encoded like any other text, which is what untrusted text needs.
  bool parse_special = true;
  /// True: adds tokens_before() and tokens_after() the text (such as <|begin_of_text|>).
  bool add_special = false;
  /// Bytes of the text, ascending, at which no special token begins, whatever they spell.
  std::span<const std::size_t> literal;
};

}  // namespace atl
