#pragma once

// A corpus: a directory of token shards in two splits, train and held-out, with the tokenizer that
// made them. corpus.json lists everything and is written last, so it never names what is not there.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/data/shard.h"
#include "atoll/data/shard_cache.h"
#include "atoll/data/token_source.h"
#include "atoll/text/tokenizer_config.h"

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

/// A file the corpus was made of.
struct SourceEntry {
  std::string path;  ///< as the user gave it
  std::uint64_t bytes = 0;
  std::string hash;             ///< XXH3-128 of its bytes, 32 hexadecimal digits
  std::string format = "text";  ///< "text", "jsonl" or "bin"
};

/// The content of corpus.json.
struct CorpusManifest {
  std::string tokenizer_file = "tokenizer.json";  ///< or "tokenizer.model"
  std::string tokenizer_hash;                     ///< XXH3-128 of that file, 32 hexadecimal digits
  std::uint64_t vocab_size = 0;
  /// The tokens round each document of text; nothing: an older program made the corpus, which put
  /// the tokenizer's end of text behind a document and nothing before it.
  std::optional<text::RecordedFrame> frame;
  std::string documents;  ///< what separates documents: "file" or "blank-line"
  double held_out = 0;    ///< the fraction of the text that was asked for
  std::uint64_t block_bytes = 0;
  std::uint64_t shard_tokens = 0;
  std::vector<SourceEntry> sources;
  std::vector<ShardEntry> shards[2];  ///< by Split

  /// Identifies tokens and splits: equal hash, equal training data. For checkpoints to compare.
  Hash128 hash() const;
  std::string to_json() const;
  /// Reads what to_json wrote. Throws Error(kDamaged) naming `origin` and what is wrong with it,
  /// Error(kUser) for another version.
  static CorpusManifest from_json(const std::string& json, const std::string& origin);
};

/// One split: its shards end to end.
class TokenSplit final : public TokenSource {
 public:
  /// `pins` keep cached shards in their cache for as long as this lives.
  TokenSplit(std::string name, std::vector<Shard> shards, std::vector<ShardPin> pins = {});

  std::string name() const override { return name_; }
  std::int64_t num_tokens() const override { return ends_.empty() ? 0 : ends_.back(); }
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;
  bool has_mask() const override { return has_mask_; }
  void copy_mask(std::int64_t begin, std::span<std::uint8_t> out) const override;
  void append_document_starts(std::int64_t begin, std::int64_t end,
                              std::vector<std::int64_t>& starts) const override;

 private:
  template <typename Value>
  void for_each_shard(std::int64_t begin, std::span<Value> out,
                      void (Shard::*copy)(std::uint64_t, std::span<Value>) const) const;
  std::size_t shard_of(std::int64_t token) const;
  std::int64_t first_token(std::size_t shard) const { return shard == 0 ? 0 : ends_[shard - 1]; }

  std::string name_;
  std::vector<Shard> shards_;
  std::vector<ShardPin> pins_;
  std::vector<std::int64_t> ends_;  // the split's tokens up to the end of each shard
  bool has_mask_ = false;
};

/// A corpus opened for reading: every file mapped and verified. Reading is safe from several
/// threads.
class Corpus {
 public:
  /// Throws Error(kUser) when `directory` holds no corpus, Error(kDamaged) naming the file when
  /// anything in it is not what corpus.json says.
  /// With a cache, shards are copied there and read from there; it must outlive this constructor
  /// only.
  explicit Corpus(const std::filesystem::path& directory, const ShardCache* cache = nullptr);

  const CorpusManifest& manifest() const { return manifest_; }
  const TokenSplit& train() const { return splits_[0]; }
  const TokenSplit& held_out() const { return splits_[1]; }
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(manifest_.vocab_size); }
  std::filesystem::path tokenizer_path() const { return directory_ / manifest_.tokenizer_file; }
  /// CorpusManifest::hash.
  Hash128 hash() const { return manifest_.hash(); }

 private:
  TokenSplit open_split(Split split, const ShardCache* cache) const;

  std::filesystem::path directory_;
  CorpusManifest manifest_;
  std::vector<TokenSplit> splits_;
};

/// True when `directory` holds a corpus.json.
bool holds_corpus(const std::filesystem::path& directory);

/// True for the name of a shard as a corpus has it: "train-00000-0a1b2c3d.atsh".
bool is_shard_name(std::string_view name);

/// True for the name of a file that makes up a corpus, or an unfinished one
/// (base/files/unfinished.h).
bool is_corpus_file(std::string_view name);

/// What an error of a corpus says, without the advice to make that corpus again with `atoll
/// tokenize`: for who knows better.
std::string without_advice(std::string_view message);

}  // namespace atl::data
