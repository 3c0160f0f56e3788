#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/data/corpus.h"

namespace atl::data {

/// Where documents go as they are tokenized, one after the other.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  /// The next token of `split` begins a document.
  virtual void begin_document(Split split) = 0;
  /// Appends tokens. `mask` is empty when all have a loss, else a byte a token: 0 for one that has
  /// none.
  virtual void append(Split split, std::span<const std::int32_t> tokens,
                      std::span<const std::uint8_t> mask) = 0;
};

/// Writes a corpus directory. Until commit() a corpus that stood there stays whole and readable:
/// shard files carry a piece of their hash in their names, so new ones never replace others, and
/// corpus.json, which is what names them, comes last. Without commit() the new shards are removed.
/// What a killed process left of a corpus in the directory goes first.
class CorpusWriter final : public DocumentSink {
 public:
  /// `manifest` with everything but the lists of shards; `tokenizer` is the content of its
  /// tokenizer_file; `directory` must exist.
  CorpusWriter(std::filesystem::path directory, std::string tokenizer, CorpusManifest manifest);
  ~CorpusWriter() override;
  CorpusWriter(const CorpusWriter&) = delete;
  CorpusWriter& operator=(const CorpusWriter&) = delete;

  void begin_document(Split split) override;
  /// Full shards are written on the way.
  void append(Split split, std::span<const std::int32_t> tokens,
              std::span<const std::uint8_t> mask = {}) override;
  std::int64_t num_tokens(Split split) const { return part(split).num_tokens; }
  /// Pieces of text that stand alone in `split`: documents, and parts of documents that a held-out
  /// block has cut.
  std::int64_t num_documents(Split split) const { return part(split).num_documents; }
  /// Writes what is left of the tokens. No append() after it; commit() calls it itself.
  void finish();
  /// What identifies the corpus, after finish().
  Hash128 hash() const { return manifest_.hash(); }
  /// Writes what is left, the tokenizer and corpus.json, and removes shards no longer listed.
  const CorpusManifest& commit();

 private:
  struct Part {
    std::vector<std::int32_t> tokens;   // not written yet
    std::vector<std::uint8_t> mask;     // one each
    std::vector<std::uint64_t> starts;  // of documents, in `tokens`
    std::int64_t num_tokens = 0;
    std::int64_t num_documents = 0;
  };
  Part& part(Split split) { return parts_[static_cast<int>(split)]; }
  const Part& part(Split split) const { return parts_[static_cast<int>(split)]; }
  void write_first(Split split, std::size_t num_tokens);
  void remove_unlisted() const;

  std::filesystem::path directory_;
  std::string tokenizer_;
  Hash128 tokenizer_hash_;
  CorpusManifest manifest_;
  Part parts_[2];
  std::vector<std::filesystem::path> created_;  // shards that go when nothing comes of it
};

}  // namespace atl::data
