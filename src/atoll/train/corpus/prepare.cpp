// Opens the corpora of a run, or makes them of its text.

#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/data/shard_cache.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/corpus/corpus_cache.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

bool have_same_frame(const data::Corpus& a, const data::Corpus& b) {
  const auto& x = a.manifest().frame;
  const auto& y = b.manifest().frame;
  if (x && y) return *x == *y;
  const auto is_plain = [](const std::optional<text::RecordedFrame>& frame) {
    return !frame || (frame->before.empty() && frame->after.empty());
  };
  return is_plain(x) && is_plain(y);
}

std::vector<data::Corpus> open_corpora(const std::vector<fs::path>& directories,
                                       const CorpusOptions& options) {
  std::optional<data::ShardCache> cache;
  if (!options.shard_cache.empty()) {
    cache.emplace(options.shard_cache, options.shard_cache_bytes);
  }
  std::vector<data::Corpus> corpora;
  std::set<fs::path> seen;
  for (const fs::path& directory : directories) {
    if (!seen.insert(fs::weakly_canonical(directory)).second) {
      throw user_error(
          "data.shards names {} twice; give it a larger weight in data.weights instead",
          directory.string());
    }
    corpora.emplace_back(directory, cache ? &*cache : nullptr);
    if (corpora.back().manifest().tokenizer_hash != corpora.front().manifest().tokenizer_hash) {
      throw user_error(
          "{} and {} were made with different tokenizers, so one model cannot learn from both; "
          "make one of them again with `atoll tokenize --tokenizer`",
          directories.front().string(), directory.string());
    }
    if (!have_same_frame(corpora.front(), corpora.back())) {
      log::warning(
          "the documents of {} and {} begin or end with different tokens (corpus.json: \"before\", "
          "\"after\", \"end_of_text\"); make one of them again with `atoll tokenize`",
          directories.front().string(), directory.string());
    }
  }
  return corpora;
}

// The user's own, with the end of text that the documents of a corpus of an older program have: it
// went by the tokenizer's file alone. What goes before a prompt the files beside it said then too.
Tokenizer tokenizer_of_older_programs(const fs::path& path) {
  Tokenizer now = Tokenizer::load(path);
  Tokenizer then = Tokenizer::from_bytes(now.file_content(), now.file_name(), path.string());
  const bool is_framed_alike =
      now.tokens_before() == then.tokens_before() && now.tokens_after() == then.tokens_after();
  return is_framed_alike ? then : now;
}

}  // namespace

PreparedCorpus prepare_corpus(const CorpusOptions& options) {
  std::vector<data::Corpus> corpora = options.shards.empty()
                                          ? open_or_make(options, open_corpora)
                                          : open_corpora(options.shards, options);
  const bool has_own =
      options.shards.empty() && !options.tokenizer.empty() && options.special_tokens.empty();
  // A corpus says what goes round a text.
  Tokenizer tokenizer = has_own && !corpora.front().manifest().frame
                            ? tokenizer_of_older_programs(options.tokenizer)
                            : Tokenizer::load(corpora.front().tokenizer_path());
  return {std::move(corpora), std::move(tokenizer)};
}

}  // namespace atl::train
