#pragma once

// The file format of tokens: a header, the tokens, and where documents begin. docs/data-format.md
// describes it byte by byte.

#include <cstdint>
#include <filesystem>
#include <span>

#include "atoll/base/file.h"
#include "atoll/base/hash.h"

namespace atl::data {

/// What a shard's header says beside its checksums.
struct ShardInfo {
  std::uint64_t num_tokens = 0;
  std::uint64_t num_documents = 0;  ///< documents that begin in this shard
  std::uint64_t vocab_size = 0;     ///< every token is below it
  Hash128 tokenizer_hash;           ///< XXH3-128 of the tokenizer.json that made the tokens
  Hash128 payload_hash;             ///< XXH3-128 of everything behind the header
};

/// What a shard holds. Document starts are ascending token offsets in this shard; a document that
/// began in the shard before has none here.
struct ShardContent {
  std::span<const std::int32_t> tokens;
  std::span<const std::uint64_t> document_starts;
  std::uint64_t vocab_size = 0;
  Hash128 tokenizer_hash;
};

/// The hash that write_shard will store for `content`: equal content, equal hash.
Hash128 shard_payload_hash(const ShardContent& content);

/// Writes a shard as an AtomicFile: u16 tokens when vocab_size <= 65536, else u32. Throws
/// Error(kInternal) for a token outside the vocabulary, Error(kIo) when it cannot be written.
ShardInfo write_shard(const std::filesystem::path& path, const ShardContent& content);

/// A shard mapped read-only and verified. Reading is safe from several threads.
class Shard {
 public:
  /// Maps the file and verifies header, sizes and payload hash. Throws Error(kDamaged) naming file
  /// and offset, Error(kUser) when the file is no shard or of another version.
  explicit Shard(const std::filesystem::path& path);

  const ShardInfo& info() const { return info_; }
  /// Tokens [begin, begin + out.size()). Throws Error(kInternal) beyond the shard's tokens.
  void copy(std::uint64_t begin, std::span<std::int32_t> out) const;
  std::span<const std::uint64_t> document_starts() const;

 private:
  MappedFile file_;
  ShardInfo info_;
  std::uint32_t token_bytes_ = 0;
};

}  // namespace atl::data
