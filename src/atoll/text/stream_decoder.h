#pragma once

// Text that appears token by token: a token may end in the middle of a character.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/text/tokenizer.h"

namespace atl {

namespace text {
struct TextState;
}  // namespace text

/// Decodes ids one at a time into valid UTF-8: bytes that may still become a character are held
/// back, bytes that cannot are replaced by U+FFFD, one per maximal invalid part (Unicode 15,
/// section 3.9, "U+FFFD Substitution of Maximal Subparts"). The byte tokens of a tokenizer.json
/// with byte fallback are held back until another token ends their run: when not all of it is
/// UTF-8, each of them is a U+FFFD, as in Hugging Face's library.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, DecodeOptions options = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// The text that `id` completes; may be empty. Throws Error(kUser) for an id outside the
  /// vocabulary.
  std::string push(std::int32_t id);
  /// What a run of byte tokens holds back, as though it ended here; the text goes on. For between a
  /// prompt and what follows it.
  std::string settle();
  /// The rest: what was held back, U+FFFD for a character left unfinished. The decoder is then as
  /// new.
  std::string finish();

 private:
  void end_run();         // of byte tokens, into held_
  std::string release();  // what of held_ is sure

  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::unique_ptr<text::TextState> state_;  // whether the text has begun
  std::vector<std::int32_t> run_;           // byte tokens whose run has not ended
  std::string held_;                        // the start of an unfinished character, at most 3 bytes
};

}  // namespace atl
