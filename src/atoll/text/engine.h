#pragma once

// What a Tokenizer holds: the parts of a tokenizer.json, built once and never changed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/text/added_tokens.h"
#include "atoll/text/bpe_model.h"
#include "atoll/text/decoder.h"
#include "atoll/text/normalizer.h"
#include "atoll/text/pre_tokenizer.h"
#include "atoll/text/regex.h"
#include "atoll/text/tokenizer.h"
#include "atoll/text/word_cache.h"

namespace atl::text {

/// The working memory of one TokenEncoder.
struct EncoderState {
  explicit EncoderState(int log2_cache_slots) : cache(log2_cache_slots) {}

  WordCache cache;
  RegexMatcher matcher;
  BpeModel::Scratch bpe;
  std::string normalized;
};

/// The immutable engine behind a Tokenizer.
struct Engine {
  /// Throws as Tokenizer::from_json.
  Engine(const TokenizerSpec& spec, std::string json_text, std::string_view origin);

  /// Appends the ids of `text`.
  void encode(std::string_view text, EncodeOptions options, EncoderState& state,
              std::vector<std::int32_t>& out) const;

  std::string json;
  Decoder decoder;
  std::optional<std::int32_t> end_of_text;

 private:
  void encode_normalized(std::string_view text, bool parse_special, EncoderState& state,
                         std::vector<std::int32_t>& out) const;
  void encode_words(std::string_view text, EncoderState& state,
                    std::vector<std::int32_t>& out) const;

  Normalizer normalizer_;
  AddedTokenFinder raw_tokens_;         // looked for in the text as it is
  AddedTokenFinder normalized_tokens_;  // looked for after normalization
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  std::vector<std::int32_t> prefix_ids_;
  std::vector<std::int32_t> suffix_ids_;
};

}  // namespace atl::text
