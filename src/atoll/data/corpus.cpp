#include "atoll/data/corpus.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/files/unfinished.h"

namespace atl::data {

namespace fs = std::filesystem;

TokenSplit::TokenSplit(std::string name, std::vector<Shard> shards, std::vector<ShardPin> pins)
    : name_(std::move(name)), shards_(std::move(shards)), pins_(std::move(pins)) {
  std::int64_t end = 0;
  for (const Shard& shard : shards_) {
    end += static_cast<std::int64_t>(shard.info().num_tokens);
    ends_.push_back(end);
    has_mask_ = has_mask_ || shard.info().has_mask;
  }
}

std::size_t TokenSplit::shard_of(std::int64_t token) const {
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), token) -
                                  ends_.begin());
}

template <typename Value>
void TokenSplit::for_each_shard(std::int64_t begin, std::span<Value> out,
                                void (Shard::*copy)(std::uint64_t, std::span<Value>) const) const {
  const auto size = static_cast<std::int64_t>(out.size());
  ATOLL_CHECK(0 <= begin && begin <= num_tokens() - size, "tokens {} to {} of {} in {}", begin,
              begin + size, num_tokens(), name_);
  for (std::size_t shard = shard_of(begin); !out.empty(); ++shard) {
    const auto here = std::min(static_cast<std::int64_t>(out.size()), ends_[shard] - begin);
    const auto offset = static_cast<std::uint64_t>(begin - first_token(shard));
    (shards_[shard].*copy)(offset, out.first(static_cast<std::size_t>(here)));
    out = out.subspan(static_cast<std::size_t>(here));
    begin += here;
  }
}

void TokenSplit::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  for_each_shard(begin, out, &Shard::copy);
}

void TokenSplit::copy_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  for_each_shard(begin, out, &Shard::copy_mask);
}

void TokenSplit::append_document_starts(std::int64_t begin, std::int64_t end,
                                        std::vector<std::int64_t>& starts) const {
  for (std::size_t i = shard_of(begin); i < shards_.size() && first_token(i) < end; ++i) {
    const std::int64_t first = first_token(i);
    const std::span<const std::uint64_t> here = shards_[i].document_starts();
    const auto from = static_cast<std::uint64_t>(std::max<std::int64_t>(begin - first, 0));
    const auto to = static_cast<std::uint64_t>(end - first);
    for (auto start = std::lower_bound(here.begin(), here.end(), from);
         start != here.end() && *start < to; ++start) {
      starts.push_back(first + static_cast<std::int64_t>(*start));
    }
  }
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

Corpus::Corpus(const fs::path& directory, const ShardCache* cache) : directory_(directory) {
  const fs::path manifest_path = directory / "corpus.json";
  if (!holds_corpus(directory)) {
    throw user_error("there is no corpus in {} (no corpus.json); make one with atoll tokenize",
                     directory.string());
  }
  manifest_ =
      CorpusManifest::from_json(read_file(manifest_path, kMaxListBytes), manifest_path.string());
  if (!path_exists(tokenizer_path())) {
    throw damaged_error("{} is missing though corpus.json names it; run atoll tokenize again",
                        tokenizer_path().string());
  }
  const std::string tokenizer = read_file(tokenizer_path(), kMaxListBytes);
  if (to_hex(hash_bytes(tokenizer.data(), tokenizer.size())) != manifest_.tokenizer_hash) {
    throw damaged_error("{} is not the tokenizer that made the corpus; run atoll tokenize again",
                        tokenizer_path().string());
  }
  splits_.push_back(open_split(Split::kTrain, cache));
  splits_.push_back(open_split(Split::kHeldOut, cache));
}

TokenSplit Corpus::open_split(Split split, const ShardCache* cache) const {
  std::vector<Shard> shards;
  std::vector<ShardPin> pins;
  for (const ShardEntry& entry : manifest_.shards[static_cast<int>(split)]) {
    const fs::path path = directory_ / entry.file;
    if (!path_exists(path)) {
      throw damaged_error("{} is missing though corpus.json lists it; run atoll tokenize again",
                          path.string());
    }
    if (cache != nullptr) {
      CachedShard cached = cache->open(path);
      shards.push_back(std::move(cached.shard));
      pins.push_back(std::move(cached.pin));
    } else {
      shards.emplace_back(path);
    }
    verify_shard(shards.back(), entry, manifest_, path);
  }
  return {fmt::format("the {} split of {}", split_name(split), directory_.string()),
          std::move(shards), std::move(pins)};
}

bool holds_corpus(const fs::path& directory) {
  return path_exists(directory / "corpus.json");
}

bool is_shard_name(std::string_view name) {
  constexpr std::string_view kEnd = ".atsh";
  constexpr std::size_t kHashDigits = 8;
  if (!name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  const auto drop_last = [&](std::string_view letters, std::size_t at_least) {
    std::size_t count = 0;
    while (!name.empty() && letters.find(name.back()) != std::string_view::npos) {
      name.remove_suffix(1);
      ++count;
    }
    return count >= at_least;
  };
  constexpr std::size_t kNumberDigits = 5;
  if (!drop_last("0123456789abcdef", kHashDigits) || !drop_last("-", 1)) return false;
  if (!drop_last("0123456789", kNumberDigits) || !drop_last("-", 1)) return false;
  return name == split_name(Split::kTrain) || name == split_name(Split::kHeldOut);
}

bool is_corpus_file(std::string_view name) {
  const std::string_view final_name = finished_name(name).value_or(name);
  return final_name == "corpus.json" || final_name == "tokenizer.json" ||
         final_name == "tokenizer.model" || is_shard_name(final_name);
}

std::string without_advice(std::string_view message) {
  const std::size_t advice = message.rfind("; ");
  const bool is_it = advice != std::string_view::npos &&
                     message.substr(advice).find("atoll tokenize") != std::string_view::npos;
  return std::string(is_it ? message.substr(0, advice) : message);
}

}  // namespace atl::data
