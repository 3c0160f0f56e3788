#pragma once

// What a Tokenizer holds: the parts of a tokenizer's file, built once and never changed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/added_tokens.h"
#include "atoll/text/bpe_model.h"
#include "atoll/text/decoder.h"
#include "atoll/text/encode_options.h"
#include "atoll/text/normalizer.h"
#include "atoll/text/pre_tokenizer.h"
#include "atoll/text/regex/regex.h"
#include "atoll/text/sentence_piece/sentence_piece.h"
#include "atoll/text/token_ids.h"
#include "atoll/text/tokenizer_config.h"
#include "atoll/text/word_cache.h"
#include "atoll/text/word_model.h"

namespace atl::text {

/// The working memory of one TokenEncoder.
struct EncoderState {
  explicit EncoderState(int log2_cache_slots) : cache(log2_cache_slots) {}

  bool within_text = false;  // of which encode_part has seen the first part
  WordCache cache;
  RegexMatcher matcher;
  BpeModel::Scratch bpe;
  WordModel::Scratch words;
  SentencePiece::Scratch sentence_piece;
  std::string normalized;
  std::string_view text;  // the whole text, for messages
};

/// The file a tokenizer is, as it was read.
struct TokenizerFile {
  std::string name;  ///< "tokenizer.json" or "tokenizer.model"
  std::string content;
};

/// The immutable engine behind a Tokenizer.
struct Engine {
  /// Throw as Tokenizer::load.
  Engine(TokenizerSpec spec, std::string json, const TextFrame& frame, std::string_view origin);
  Engine(const SentencePieceSpec& spec, std::string model, const TextFrame& frame,
         std::string_view origin);

  /// Appends the ids of `text`, or of a part of it; one in parts has no special tokens spelled in
  /// it. Throws Error(kUser) for a character that has no token.
  void encode(std::string_view text, EncodeOptions options, EncoderState& state,
              std::vector<std::int32_t>& out, SentencePiece::Part part = {}) const;

  /// The first special token spelled in `text` at or behind byte `start`.
  std::optional<std::pair<std::size_t, std::size_t>> find_special(std::string_view text,
                                                                  std::size_t start) const;

  TokenizerFile file;
  Decoder decoder;
  std::optional<std::int32_t> end_of_text;
  std::vector<std::int32_t> prefix_ids;  // what EncodeOptions::add_special puts before a text
  std::vector<std::int32_t> suffix_ids;  // and after it

 private:
  Engine(const SettledSpec& settled, std::string json, const TextFrame& frame,
         std::string_view origin);
  void take_recorded(const TextFrame& frame);
  // `raw`, which begins at byte `offset` of the text, is `piece` before normalization.
  void encode_normalized(std::string_view raw, std::size_t offset, std::string_view piece,
                         EncodeOptions options, TextStart start, EncoderState& state,
                         std::vector<std::int32_t>& out) const;
  void encode_words(std::string_view piece, TextStart start, EncoderState& state,
                    std::vector<std::int32_t>& out) const;

  AddedTokenFinder raw_tokens_;         // looked for in the text as it is
  AddedTokenFinder normalized_tokens_;  // looked for after normalization
  // A tokenizer.json has the first two of these, and one of the models ...
  std::optional<Normalizer> normalizer_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::optional<BpeModel> model_;
  std::optional<WordModel> word_model_;
  // ... a tokenizer.model this one.
  std::optional<SentencePiece> sentence_piece_;
};

}  // namespace atl::text
