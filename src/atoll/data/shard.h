#pragma once

// The file format of tokens: a header, the tokens, where documents begin, and which tokens have a
// loss. docs/data-format.md describes it byte by byte.

#include <cstdint>
#include <filesystem>
#include <span>

#include "atoll/base/files/file.h"
#include "atoll/base/hash.h"

namespace atl::data {

/// What a shard's header says beside its checksums.
struct ShardInfo {
  std::uint64_t num_tokens = 0;
  std::uint64_t num_documents = 0;  ///< documents that begin in this shard
  std::uint64_t vocab_size = 0;     ///< every token is below it
  Hash128 tokenizer_hash;           ///< XXH3-128 of the tokenizer's file that made the tokens
  Hash128 payload_hash;             ///< XXH3-128 of everything behind the header
  bool has_mask = false;            ///< some token may have no loss
};

/// What a shard holds. Document starts are ascending token offsets in this shard; a document that
/// began in the shard before has none here. `mask` is empty (every token has a loss), or one byte a
/// token: 0 for a token without loss.
struct ShardContent {
  std::span<const std::int32_t> tokens;
  std::span<const std::uint64_t> document_starts;
  std::uint64_t vocab_size = 0;
  Hash128 tokenizer_hash;
  std::span<const std::uint8_t> mask = {};
};

/// The hash that write_shard will store for `content`: equal content, equal hash.
Hash128 shard_payload_hash(const ShardContent& content);

/// Writes a shard as an AtomicFile: u16 tokens when vocab_size <= 65536, else u32; version 2 of the
/// format with a mask, version 1, which older programs read, without. Throws
/// Error(kInternal) for a token outside the vocabulary, Error(kIo) when it cannot be written.
ShardInfo write_shard(const std::filesystem::path& path, const ShardContent& content);

/// A shard mapped read-only and verified. Reading is safe from several threads.
class Shard {
 public:
  /// Maps the file and verifies header, sizes, payload hash, and that tokens lie in the vocabulary.
  /// Throws Error(kDamaged) naming file and offset or token, Error(kUser) when the file is no shard
  /// or of another version.
  explicit Shard(const std::filesystem::path& path);

  const ShardInfo& info() const { return info_; }
  /// Tokens [begin, begin + out.size()). Throws Error(kInternal) beyond the shard's tokens.
  void copy(std::uint64_t begin, std::span<std::int32_t> out) const;
  std::span<const std::uint64_t> document_starts() const;
  /// The loss mask of tokens [begin, begin + out.size()), a byte each: ones when it has no mask.
  /// Throws Error(kInternal) beyond the shard's tokens.
  void copy_mask(std::uint64_t begin, std::span<std::uint8_t> out) const;

 private:
  MappedFile file_;
  ShardInfo info_;
  std::uint32_t token_bytes_ = 0;
  std::size_t header_bytes_ = 0;
  std::size_t starts_at_ = 0;  // in the file
};

}  // namespace atl::data
