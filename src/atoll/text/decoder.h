#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/text/sentence_piece/sentence_piece_spec.h"
#include "atoll/text/token_index.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// What each id stands for: tokens spell bytes as their tokenizer has it, added tokens stand for
/// themselves. (The Hugging Face library reads an added token's content as byte-level spelling when
/// it can, so an added "é" does not decode to "é" there; ids are not concerned.)
class Decoder {
 public:
  /// `vocab` has the tokens of the spec's model, as settle_token_ids() gives both. Throws
  /// Error(kDamaged), naming `origin`, for ids that are negative, huge or used twice.
  Decoder(const TokenizerSpec& spec, TokenIndex vocab, std::string_view origin);
  /// As the other, for pieces that occur twice.
  Decoder(const SentencePieceSpec& spec, std::string_view origin);

  /// One more than the highest id.
  std::int32_t vocab_size() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Whether the vocabulary has this id.
  bool exists(std::int32_t id) const { return id >= 0 && id < vocab_size() && tokens_[id].exists; }
  /// The bytes of an id. Throws Error(kUser) for one that the vocabulary does not have.
  std::string_view bytes(std::int32_t id) const;
  /// True for special added tokens; false for any id that does not exist.
  bool is_special(std::int32_t id) const;
  /// True for the tokens of single bytes that Hugging Face's library makes text of all together:
  /// one byte that is wrong spoils its neighbours. Never of a SentencePiece model, whose library
  /// does not.
  bool joins_run_of_bytes(std::int32_t id) const {
    return exists(id) && tokens_[id].joins_run_of_bytes;
  }
  /// The id of a token as the file spells it.
  std::optional<std::int32_t> id_of(std::string_view token) const;

  /// Decodes one text token by token; its start may lose what encoding put there. Remembers at most
  /// one token, so it is cheap to copy.
  class Text {
   public:
    explicit Text(const Decoder& decoder)
        : decoder_(&decoder), strip_left_(decoder.rules_.strip_count) {}
    /// Appends what the next token adds. Throws as bytes().
    void append(std::int32_t id, std::string& out);
    /// The text has begun otherwise than by a token: the next one loses nothing.
    void begin() {
      first_ = false;
      strip_left_ = 0;
      last_ = -1;
      spaces_ = 0;
    }

   private:
    const Decoder* decoder_;
    int strip_left_;
    bool first_ = true;
    std::int32_t last_ = -1;  // the token before, where repeats are joined
    int spaces_ = 0;          // that the token before ends with, should another follow
  };

 private:
  struct Token {
    std::string bytes;
    bool exists = false;
    bool special = false;
    bool verbatim = false;  // loses nothing at the start of a text
    bool joins_run_of_bytes = false;
    int spaces_after = 0;  // unless it is the last
  };
  void take_word_ends(std::string_view origin);
  void add(std::string_view token, std::int32_t id, std::string bytes, std::string_view origin);
  void put(std::string_view token, std::int32_t id, std::string bytes, std::string_view origin);

  DecoderSpec rules_;
  std::int32_t max_id_;
  std::vector<Token> tokens_;
  TokenIndex ids_;
  // What tokens are at the start of a text, where that may differ.
  std::unordered_map<std::int32_t, std::string> first_bytes_;
};

}  // namespace atl::text
