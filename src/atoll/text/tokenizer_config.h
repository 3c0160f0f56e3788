#pragma once

// The part of a tokenizer_config.json that a tokenizer.model leaves open: what goes round a text.

#include <filesystem>
#include <optional>
#include <string>

namespace atl::text {

/// Whether a text gets a token before it and one after it, and which.
struct TextFrame {
  std::optional<bool> add_bos;           ///< Absent: the file does not say.
  std::optional<bool> add_eos;           ///< Likewise.
  std::optional<std::string> bos_token;  ///< As the vocabulary spells it.
  std::optional<std::string> eos_token;
  std::string origin;  ///< The file, for messages; empty: there is none.
};

/// Reads add_bos_token, add_eos_token, bos_token and eos_token of the tokenizer_config.json in a
/// directory; nothing of them where there is no such file. Throws Error(kDamaged) naming the file
/// and the key for what is no JSON object, or no flag.
TextFrame read_text_frame(const std::filesystem::path& directory);

}  // namespace atl::text
