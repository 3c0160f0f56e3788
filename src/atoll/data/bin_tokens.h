#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "atoll/base/files/file.h"
#include "atoll/text/tokenizer.h"

namespace atl::data {

/// A .bin file of tokens, as other trainers write them: llm.c (a header of 256 i32: 20240520,
/// version 1, u16 tokens; or 20240801, version 7, u32 tokens) and nanoGPT (u16 tokens, no header).
class BinTokens {
 public:
  /// Maps the file. Throws Error(kUser) naming file and value for another version, Error(kDamaged)
  /// for a size that is not what the header says. `tokenizer` is the one that made the tokens.
  BinTokens(const std::filesystem::path& path, const Tokenizer& tokenizer);

  std::uint64_t num_tokens() const { return num_tokens_; }
  std::size_t token_bytes() const { return token_bytes_; }
  /// The token between documents, if the tokenizer has one.
  std::optional<std::int32_t> delimiter() const { return delimiter_; }
  /// True when it is the first token of a document (llm.c), false when the last (nanoGPT).
  bool delimiter_first() const { return header_bytes_ > 0; }
  /// Tokens [begin, begin + out.size()). Throws Error(kUser) naming byte and value for one that the
  /// tokenizer does not have, Error(kInternal) beyond num_tokens().
  void copy(std::uint64_t begin, std::span<std::int32_t> out) const;
  /// The first place in [begin, end) of a token, else `end`: without copying, so that looking for
  /// the end of a short document costs no more than the document. Throws as copy.
  std::uint64_t find(std::int32_t token, std::uint64_t begin, std::uint64_t end) const;

 private:
  std::uint32_t raw(std::uint64_t token) const;
  void read_header(const Tokenizer& tokenizer);

  std::filesystem::path path_;
  MappedFile file_;
  std::uint32_t vocab_size_;
  std::size_t header_bytes_ = 0;
  std::size_t token_bytes_ = 2;
  std::uint64_t num_tokens_ = 0;
  std::optional<std::int32_t> delimiter_;
};

}  // namespace atl::data
