#pragma once

// What the files beside a tokenizer say of it: which token ends a text, and what goes round a text.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace atl::text {

/// The tokens round every document of a corpus, as its corpus.json lists them.
struct RecordedFrame {
  std::optional<std::int32_t> end_of_text;
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;

  bool operator==(const RecordedFrame&) const = default;
};

/// What is said of the tokens round a text. Where a file says nothing, the tokenizer's own file
/// decides.
struct TextFrame {
  std::optional<bool> add_bos;           ///< Absent: the file does not say.
  std::optional<bool> add_eos;           ///< Likewise.
  std::optional<std::string> bos_token;  ///< As the vocabulary spells it.
  std::optional<std::string> eos_token;
  std::string origin;  ///< The tokenizer_config.json, for messages; empty: there is none.
  std::vector<std::int64_t> eos_ids;      ///< The model's eos_token_id; may be beyond the tokens.
  std::optional<RecordedFrame> recorded;  ///< Of a corpus: it says what was done, and goes first.
  std::string directory;                  ///< Where all of it was read, for messages.
};

/// Reads a directory: add_bos_token, add_eos_token, bos_token and eos_token of
/// tokenizer_config.json (the latter two else of special_tokens_map.json), eos_token_id of
/// generation_config.json (else of config.json), and corpus.json. A file that is not there says
/// nothing. Throws Error(kUser) naming file and key for what cannot be read, is no JSON object, or
/// has another type.
TextFrame read_text_frame(const std::filesystem::path& directory);

/// The "eos_token_id" of a generation_config.json or config.json: one id, or a list; empty where
/// there is no such file or key, and for null and -1. Throws as read_text_frame.
std::vector<std::int64_t> read_eos_ids(const std::filesystem::path& file);

}  // namespace atl::text
