#include "atoll/data/corpus_writer.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/files/unfinished.h"

namespace atl::data {

namespace fs = std::filesystem;

CorpusWriter::CorpusWriter(fs::path directory, std::string tokenizer, CorpusManifest manifest)
    : directory_(std::move(directory)),
      tokenizer_(std::move(tokenizer)),
      tokenizer_hash_(hash_bytes(tokenizer_.data(), tokenizer_.size())),
      manifest_(std::move(manifest)) {
  ATOLL_CHECK(manifest_.shard_tokens > 0);
  manifest_.tokenizer_hash = to_hex(tokenizer_hash_);
  for (auto& shards : manifest_.shards) shards.clear();
  sweep_unfinished(directory_, is_corpus_file);
}

CorpusWriter::~CorpusWriter() {
  std::error_code ignored;  // what cannot be removed is only in the way of disk space
  for (const fs::path& path : created_) fs::remove(path, ignored);
}

void CorpusWriter::begin_document(Split split) {
  Part& to = part(split);
  // The document before may have given no token at all; then this one takes its place.
  if (!to.starts.empty() && to.starts.back() == to.tokens.size()) return;
  to.starts.push_back(to.tokens.size());
  ++to.num_documents;
}

void CorpusWriter::append(Split split, std::span<const std::int32_t> tokens,
                          std::span<const std::uint8_t> mask) {
  ATOLL_CHECK(mask.empty() || mask.size() == tokens.size());
  Part& to = part(split);
  if (mask.empty()) {
    to.mask.insert(to.mask.end(), tokens.size(), 1);
  } else {
    to.mask.insert(to.mask.end(), mask.begin(), mask.end());
  }
  to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
  to.num_tokens += static_cast<std::int64_t>(tokens.size());
  // One token more than a shard must be there: a start at the very end belongs to the next shard.
  while (to.tokens.size() > manifest_.shard_tokens) write_first(split, manifest_.shard_tokens);
}

void CorpusWriter::write_first(Split split, std::size_t num_tokens) {
  Part& from = part(split);
  const auto starts_end = std::lower_bound(from.starts.begin(), from.starts.end(), num_tokens);
  std::span<const std::uint8_t> mask = std::span(from.mask).first(num_tokens);
  if (std::find(mask.begin(), mask.end(), 0) == mask.end()) mask = {};
  const ShardContent content = {
      std::span(from.tokens).first(num_tokens),
      std::span(from.starts).first(static_cast<std::size_t>(starts_end - from.starts.begin())),
      manifest_.vocab_size, tokenizer_hash_, mask};
  std::vector<ShardEntry>& list = manifest_.shards[static_cast<int>(split)];
  const std::string name = fmt::format("{}-{:05}-{}.atsh", split_name(split), list.size(),
                                       to_hex(shard_payload_hash(content)).substr(0, 8));
  const fs::path path = directory_ / name;
  // A file of this name holds these very tokens and belongs to the corpus that stands here.
  if (!path_exists(path)) created_.push_back(path);
  const ShardInfo info = write_shard(path, content);
  list.push_back({name, info.num_tokens, info.num_documents, to_hex(info.payload_hash)});
  from.tokens.erase(from.tokens.begin(),
                    from.tokens.begin() + static_cast<std::ptrdiff_t>(num_tokens));
  from.mask.erase(from.mask.begin(), from.mask.begin() + static_cast<std::ptrdiff_t>(num_tokens));
  from.starts.erase(from.starts.begin(), starts_end);
  for (std::uint64_t& start : from.starts) start -= num_tokens;
}

void CorpusWriter::finish() {
  for (const Split split : {Split::kTrain, Split::kHeldOut}) {
    Part& last = part(split);
    if (!last.starts.empty() && last.starts.back() == last.tokens.size()) {
      last.starts.pop_back();
      --last.num_documents;
    }
    if (!last.tokens.empty()) write_first(split, last.tokens.size());
  }
}

const CorpusManifest& CorpusWriter::commit() {
  finish();
  const fs::path tokenizer = directory_ / manifest_.tokenizer_file;
  if (!path_exists(tokenizer) || read_file(tokenizer, kMaxListBytes) != tokenizer_) {
    write_file(tokenizer, tokenizer_);
  }
  // From here on the shards stay: a write can fail after the rename (the directory's fsync), and
  // then corpus.json already names them. Unlisted ones are removed by the next commit.
  created_.clear();
  write_file(directory_ / "corpus.json", manifest_.to_json());
  remove_unlisted();
  return manifest_;
}

void CorpusWriter::remove_unlisted() const {
  std::vector<std::string> listed;
  for (const auto& shards : manifest_.shards) {
    for (const ShardEntry& shard : shards) listed.push_back(shard.file);
  }
  std::error_code ignored;  // the corpus is complete; what stays takes only disk space
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!is_shard_name(name)) continue;
    if (std::find(listed.begin(), listed.end(), name) != listed.end()) continue;
    fs::remove(entry.path(), ignored);
  }
}

}  // namespace atl::data
