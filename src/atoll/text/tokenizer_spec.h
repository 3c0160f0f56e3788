#pragma once

// What a tokenizer.json says, as plain data: parsed here, and turned into an Engine elsewhere.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/text/unicode_classes.h"

namespace atl::text {

/// GPT-2's word pattern, which Hugging Face's ByteLevel(use_regex) runs (Radford et al. 2019,
/// "Language Models are Unsupervised Multitask Learners", released encoder).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Unicode normalization forms (Unicode Standard Annex 15).
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// A token that is cut out of the text before anything else sees it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool lstrip = false;      ///< Takes the white space before it along.
  bool rstrip = false;      ///< Takes the white space after it along.
  bool normalized = false;  ///< Is looked for after normalization, not before.
  bool special = false;
  bool single_word = false;  ///< Not where a word character stands before or after it.
};

/// Where a piece of text stands that a normalizer and a pre-tokenizer are given.
enum class TextStart {
  kFirst,       ///< It begins a text.
  kAfterToken,  ///< It follows an added token.
  kGoesOn,      ///< It follows other text: what goes before a text or piece does not go before it.
};

/// One step of the normalizer; steps run in order.
struct NormalizerStep {
  enum class Kind {
    kForm,       ///< Unicode normalization to `form`.
    kPrepend,    ///< `content` goes before a text that is not empty.
    kReplace,    ///< Matches of `pattern` become `content`.
    kLowercase,  ///< Every character becomes its lower case.
    kStrip,      ///< White space at the ends goes away: `left`, `right`.
    kRemove,     ///< Characters of `char_class` go away.
    kSpace,      ///< Characters of `char_class` become spaces.
    kSurround,   ///< Characters of `char_class` get a space before and one after.
    kCharsMap,   ///< SentencePiece's map of characters, which is `content`.
    kByteLevel,  ///< Every byte becomes the character that spells it (byte_level.h).
  };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  std::string pattern;  ///< A regular expression, or literal text.
  bool literal = true;  ///< True when `pattern` is literal text.
  std::string content;
  bool left = true;
  bool right = true;
  CharClass char_class = CharClass::kWord;
};

/// One step of the pre-tokenizer; steps run in order, each on the pieces of the one before.
struct PreTokenizerStep {
  enum class Kind {
    kSplit,        ///< Cuts at matches of `pattern`; `behavior` says which pieces that gives.
    kPrefixSpace,  ///< A piece that does not start with a space gets one.
    kMetaspace,    ///< Spaces become `pattern`; see `prepend`; then cut before each when `split`.
    kByteLevel,    ///< Every byte becomes the character that spells it; for steps after ByteLevel.
    kScripts,      ///< Cuts where another script begins (unicode_scripts.h).
  };
  /// What a match is to the text around it; adjacent matches count as one after the other.
  enum class Behavior {
    kIsolated,            ///< A word of its own.
    kRemoved,             ///< Nothing: it vanishes.
    kMergedWithPrevious,  ///< The end of the word before it.
    kMergedWithNext,      ///< The start of the word after it.
    kContiguous,          ///< A word of its own together with its neighbouring matches.
  };
  /// Which pieces get the replacement of a space before them when they do not start with one.
  enum class Prepend { kNever, kFirst, kAlways };

  Kind kind = Kind::kSplit;
  std::string pattern;   ///< A regular expression, or literal text.
  bool literal = false;  ///< True when `pattern` is literal text.
  bool invert = false;   ///< What is between the matches counts as the matches.
  Behavior behavior = Behavior::kIsolated;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

/// The algorithm that makes tokens of a word.
enum class ModelKind { kBpe, kWordLevel, kWordPiece, kUnigram };

/// What the other models than BPE have besides their vocabulary. (WordModel)
struct WordModelSpec {
  std::string continuing_prefix;       ///< Of WordPiece: before tokens inside a word, as in "##s".
  std::size_t max_chars = 100;         ///< Of WordPiece: a longer word is unknown.
  std::vector<double> scores;          ///< Of Unigram: by id.
  std::optional<std::int32_t> unk_id;  ///< Of Unigram.
};

/// A BPE model: over bytes, or over characters as SentencePiece's vocabularies have it. Of the
/// other models it has the vocabulary, byte_fallback and unk_token.
struct BpeSpec {
  /// Token, id. A byte-level vocabulary spells bytes as characters (see byte_level.h).
  std::vector<std::pair<std::string, std::int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  ///< Best first.
  bool ignore_merges = false;  ///< A word that is a token is that token, whatever the merges say.
  bool byte_level = true;      ///< Words are bytes; the rest is for characters only.
  bool byte_fallback = false;  ///< A character without a token becomes its bytes, <0x00> to <0xFF>.
  bool fuse_unk = false;       ///< Neighbouring unknown characters become one unk_token.
  std::string continuing_prefix;         ///< Begins a character of a word that is not its first.
  std::string end_suffix;                ///< Ends the last character of a word, as in "s</w>".
  std::optional<std::string> unk_token;  ///< What an unknown character becomes; none: an error.
};

/// What is done to every token by itself before tokens become text.
struct DecoderStep {
  enum class Kind {
    kReplace,    ///< Matches of `pattern` become `content`.
    kStrip,      ///< The character `content` goes away at the ends: `start` times, `stop` times.
    kMetaspace,  ///< `pattern` becomes a space; of the first token, nothing where `first_removes`.
  };
  Kind kind = Kind::kReplace;
  std::string pattern;  ///< A regular expression, or literal text.
  bool literal = true;  ///< True when `pattern` is literal text.
  std::string content;
  int start = 0;
  int stop = 0;
  bool first_removes = false;
};

/// How tokens become text. A tokenizer whose words are bytes leaves all but byte_level unset.
struct DecoderSpec {
  std::vector<DecoderStep>
      steps;                   ///< Run in this order on every token; not on bytes of a fallback.
  bool byte_level = false;     ///< Tokens spell bytes, of words that are characters.
  bool byte_fallback = false;  ///< Tokens <0x00> to <0xFF> are bytes.
  std::string strip;           ///< One ASCII character, or none; it goes away at the text's start,
  int strip_count = 0;         ///< so many times at most.
  /// Tokens are words: a space goes before each but the first. One that begins with
  /// `continuing_prefix`, if there is one, loses that instead.
  bool spaces = false;
  std::string continuing_prefix;
  bool cleanup = false;  ///< Spaces before English punctuation go away, after all else.
  /// What ends the last token of a word: a space, but none at the end of the text. Empty: nothing.
  std::string word_end;
  /// Of CTC: of neighbours that are the same token, one counts; `pad` in it goes away, and with
  /// `cleanup` the delimiter becomes a space.
  bool joins_repeats = false;
  std::string pad;
  std::string word_delimiter;
};

/// All of a tokenizer.json.
struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<std::int32_t> prefix_ids;  ///< What the post-processor puts before a text.
  std::vector<std::int32_t> suffix_ids;  ///< And after it.
  ModelKind model_kind = ModelKind::kBpe;
  BpeSpec model;
  WordModelSpec words;
  DecoderSpec decoder;
};

/// Reads a tokenizer.json; `origin` is its path for messages. Throws Error(kDamaged) when it is
/// malformed, Error(kUser) when it asks for something that is not supported.
TokenizerSpec parse_tokenizer_json(std::string_view json, std::string_view origin);

/// Writes a tokenizer.json that Hugging Face's library reads. Throws Error(kInternal) for a spec
/// that has more than a trained one has: normalizers, a template, other splits than one pattern.
std::string write_tokenizer_json(const TokenizerSpec& spec);

}  // namespace atl::text
