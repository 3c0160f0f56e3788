#pragma once

// Text that appears token by token: a token may end in the middle of a character.

#include <cstdint>
#include <memory>
#include <string>

#include "atoll/text/tokenizer.h"

namespace atl {

namespace text {
struct TextState;
}  // namespace text

/// Decodes ids one at a time into valid UTF-8: bytes that may still become a character are held
/// back, bytes that cannot are replaced by U+FFFD, one per maximal invalid part (Unicode 15,
/// section 3.9, "U+FFFD Substitution of Maximal Subparts").
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, DecodeOptions options = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// The text that `id` completes; may be empty. Throws Error(kUser) for an id outside the
  /// vocabulary.
  std::string push(std::int32_t id);
  /// The rest: U+FFFD if a character was left unfinished. The decoder is then as new.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::unique_ptr<text::TextState> state_;  // whether the text has begun
  std::string held_;                        // the start of an unfinished character, at most 3 bytes
};

}  // namespace atl
