#pragma once

// A corpus: a directory of token shards in two splits, train and held-out, with the tokenizer that
// made them. corpus.json lists everything and is written last, so it never names what is not there.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/data/shard.h"
#include "atoll/data/token_source.h"

namespace atl::data {

/// What a corpus is divided into; no text is in both.
enum class Split { kTrain, kHeldOut };

/// "train" or "heldout", as in the names of shard files.
const char* split_name(Split split);

/// A shard as corpus.json lists it.
struct ShardEntry {
  std::string file;  ///< its name in the corpus directory
  std::uint64_t num_tokens = 0;
  std::uint64_t num_documents = 0;
  std::string payload_hash;  ///< 32 hexadecimal digits
};

/// A text file the corpus was made of.
struct SourceEntry {
  std::string path;  ///< as the user gave it
  std::uint64_t bytes = 0;
  std::string hash;  ///< XXH3-128 of its bytes, 32 hexadecimal digits
};

/// The content of corpus.json.
struct CorpusManifest {
  std::string tokenizer_hash;  ///< XXH3-128 of tokenizer.json, 32 hexadecimal digits
  std::uint64_t vocab_size = 0;
  std::string documents;  ///< what separates documents: "file" or "blank-line"
  double held_out = 0;    ///< the fraction of the text that was asked for
  std::uint64_t block_bytes = 0;
  std::uint64_t shard_tokens = 0;
  std::vector<SourceEntry> sources;
  std::vector<ShardEntry> shards[2];  ///< by Split

  std::string to_json() const;
  /// Reads what to_json wrote. Throws Error(kDamaged) naming `origin` and what is wrong with it,
  /// Error(kUser) for another version.
  static CorpusManifest from_json(const std::string& json, const std::string& origin);
};

/// One split: its shards end to end.
class TokenSplit final : public TokenSource {
 public:
  TokenSplit(std::string name, std::vector<Shard> shards);

  std::string name() const override { return name_; }
  std::int64_t num_tokens() const override { return ends_.empty() ? 0 : ends_.back(); }
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;
  /// Where documents begin, in tokens of the split, ascending.
  std::vector<std::int64_t> document_starts() const;

 private:
  std::string name_;
  std::vector<Shard> shards_;
  std::vector<std::int64_t> ends_;  // the split's tokens up to the end of each shard
};

/// A corpus opened for reading: every file mapped and verified. Reading is safe from several
/// threads.
class Corpus {
 public:
  /// Throws Error(kUser) when `directory` holds no corpus, Error(kDamaged) naming the file when
  /// anything in it is not what corpus.json says.
  explicit Corpus(const std::filesystem::path& directory);

  const CorpusManifest& manifest() const { return manifest_; }
  const TokenSplit& train() const { return splits_[0]; }
  const TokenSplit& held_out() const { return splits_[1]; }
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(manifest_.vocab_size); }
  std::filesystem::path tokenizer_path() const { return directory_ / "tokenizer.json"; }
  /// Identifies tokens and splits: equal hash, equal training data. For checkpoints to compare.
  Hash128 hash() const;

 private:
  TokenSplit open_split(Split split) const;

  std::filesystem::path directory_;
  CorpusManifest manifest_;
  std::vector<TokenSplit> splits_;
};

/// True when `directory` holds a corpus.json.
bool holds_corpus(const std::filesystem::path& directory);

}  // namespace atl::data
