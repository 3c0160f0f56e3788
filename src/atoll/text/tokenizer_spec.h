#pragma once

// What a tokenizer.json says, as plain data: parsed here, and turned into an Engine elsewhere.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
};

/// One step of the pre-tokenizer; steps run in order, each on the pieces of the one before.
struct PreTokenizerStep {
  enum class Kind {
    kSplit,        ///< Matches become words, and so does the text between them.
    kSplitRemove,  ///< As kSplit, but matches (or with `invert` what is between) vanish.
    kPrefixSpace,  ///< A piece that does not start with a space gets one.
  };
  Kind kind = Kind::kSplit;
  std::string pattern;   ///< A regular expression, or literal text.
  bool literal = false;  ///< True when `pattern` is literal text.
  bool invert = false;
};

/// A byte-level BPE model.
struct BpeSpec {
  std::vector<std::pair<std::string, std::int32_t>> vocab;  ///< Byte-level spelling, id.
  std::vector<std::pair<std::string, std::string>> merges;  ///< Best first.
  bool ignore_merges = false;  ///< A word that is a token is that token, whatever the merges say.
};

/// All of a tokenizer.json.
struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;
  std::vector<NormalForm> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<std::int32_t> prefix_ids;  ///< What TemplateProcessing puts before a text.
  std::vector<std::int32_t> suffix_ids;  ///< And after it.
  BpeSpec model;
};

/// Reads a tokenizer.json; `origin` is its path for messages. Throws Error(kDamaged) when it is
/// malformed, Error(kUser) when it asks for something that is not supported.
TokenizerSpec parse_tokenizer_json(std::string_view json, std::string_view origin);

/// Writes a tokenizer.json that Hugging Face's library reads. Throws Error(kInternal) for a spec
/// that has more than a trained one has: normalizers, a template, removing splits.
std::string write_tokenizer_json(const TokenizerSpec& spec);

}  // namespace atl::text
