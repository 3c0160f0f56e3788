#include "atoll/data/corpus.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/file.h"

namespace atl::data {

namespace fs = std::filesystem;

TokenSplit::TokenSplit(std::string name, std::vector<Shard> shards)
    : name_(std::move(name)), shards_(std::move(shards)) {
  std::int64_t end = 0;
  for (const Shard& shard : shards_) {
    end += static_cast<std::int64_t>(shard.info().num_tokens);
    ends_.push_back(end);
  }
}

void TokenSplit::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  ATOLL_CHECK(0 <= begin && begin <= num_tokens() - size, "tokens {} to {} of {} in {}", begin,
              begin + size, num_tokens(), name_);
  auto shard =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  while (!out.empty()) {
    const std::int64_t first = shard == 0 ? 0 : ends_[shard - 1];
    const auto here = std::min(static_cast<std::int64_t>(out.size()), ends_[shard] - begin);
    shards_[shard].copy(static_cast<std::uint64_t>(begin - first),
                        out.first(static_cast<std::size_t>(here)));
    out = out.subspan(static_cast<std::size_t>(here));
    begin += here;
    ++shard;
  }
}

std::vector<std::int64_t> TokenSplit::document_starts() const {
  std::vector<std::int64_t> starts;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::int64_t first = i == 0 ? 0 : ends_[i - 1];
    for (const std::uint64_t start : shards_[i].document_starts()) {
      starts.push_back(first + static_cast<std::int64_t>(start));
    }
  }
  return starts;
}

namespace {

void verify_shard(const Shard& shard, const ShardEntry& entry, const CorpusManifest& manifest,
                  const fs::path& path) {
  const ShardInfo& info = shard.info();
  if (info.num_tokens != entry.num_tokens || info.num_documents != entry.num_documents ||
      to_hex(info.payload_hash) != entry.payload_hash || info.vocab_size != manifest.vocab_size ||
      to_hex(info.tokenizer_hash) != manifest.tokenizer_hash) {
    throw damaged_error(
        "{} is not the shard that corpus.json lists ({} tokens, hash {}); run atoll tokenize again",
        path.string(), entry.num_tokens, entry.payload_hash);
  }
}

}  // namespace

Corpus::Corpus(const fs::path& directory) : directory_(directory) {
  const fs::path manifest_path = directory / "corpus.json";
  if (!holds_corpus(directory)) {
    throw user_error("there is no corpus in {} (no corpus.json); make one with atoll tokenize",
                     directory.string());
  }
  manifest_ = CorpusManifest::from_json(read_file(manifest_path), manifest_path.string());
  const std::string tokenizer = read_file(tokenizer_path());
  if (to_hex(hash_bytes(tokenizer.data(), tokenizer.size())) != manifest_.tokenizer_hash) {
    throw damaged_error("{} is not the tokenizer that made the corpus; run atoll tokenize again",
                        tokenizer_path().string());
  }
  splits_.push_back(open_split(Split::kTrain));
  splits_.push_back(open_split(Split::kHeldOut));
}

TokenSplit Corpus::open_split(Split split) const {
  std::vector<Shard> shards;
  for (const ShardEntry& entry : manifest_.shards[static_cast<int>(split)]) {
    const fs::path path = directory_ / entry.file;
    if (!fs::exists(path)) {
      throw damaged_error("{} is missing though corpus.json lists it; run atoll tokenize again",
                          path.string());
    }
    shards.emplace_back(path);
    verify_shard(shards.back(), entry, manifest_, path);
  }
  return {fmt::format("the {} split of {}", split_name(split), directory_.string()),
          std::move(shards)};
}

Hash128 Corpus::hash() const {
  Hasher hasher;
  const auto add = [&](const std::string& text) { hasher.update(text.data(), text.size()); };
  add(manifest_.tokenizer_hash);
  for (const auto& shards : manifest_.shards) {
    add("/");
    for (const ShardEntry& shard : shards) add(shard.payload_hash);
  }
  return hasher.digest();
}

bool holds_corpus(const fs::path& directory) {
  std::error_code ignored;  // a directory that cannot be looked into holds none that can be used
  return fs::exists(directory / "corpus.json", ignored);
}

}  // namespace atl::data
