#pragma once

// Tokens of one answer as the text that a client sees.

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "atoll/serve/api/stop_finder.h"
#include "atoll/serve/batch/request.h"
#include "atoll/text/stream_decoder.h"

namespace atl::serve::api {

/// A token, and where its text begins.
struct PlacedToken {
  TokenResult token;
  std::size_t begin = 0;       ///< bytes of text before it
  std::size_t characters = 0;  ///< the same in characters
  bool has_logprob = true;     ///< false: of a prompt's first token there is none
};

/// A part of an answer: what a client may see now.
struct Piece {
  std::string text;  ///< whole characters
  /// The tokens whose text begins in all that was given out, in order, each once.
  std::vector<PlacedToken> tokens;
};

/// Makes pieces of tokens: characters are whole, and what may become a stop text is held back. The
/// pieces of a stream are together what one piece would be.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops);

  /// Says what comes before the answer, which is not shown: whether a text has begun changes what
  /// its first token stands for.
  void follow(std::span<const std::int32_t> prompt);
  /// The same for a prompt that is part of the answer; stops are not looked for in it.
  Piece echo(std::span<const TokenResult> prompt);
  /// The next token.
  Piece push(const TokenResult& token);
  /// The rest. Of a text that a stop has ended, there is none.
  Piece finish();
  /// Whether a stop text has come.
  bool has_stopped() const { return stops_.has_stopped(); }

 private:
  void place(const TokenResult& token, bool has_logprob);
  void take_text(const std::string& text);
  Piece give(std::string shown);

  Tokenizer tokenizer_;
  StreamDecoder decoder_;
  StopFinder stops_;
  std::size_t read_bytes_ = 0;       // of text that came out of the decoder
  std::size_t read_characters_ = 0;  // the same in characters
  std::size_t shown_bytes_ = 0;
  std::deque<PlacedToken> waiting_;
};

/// The number of characters of a text in UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace atl::serve::api
