#include "atoll/cli/models/vocabulary.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/files/paths.h"
#include "atoll/data/corpus.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/corpus/corpus.h"

namespace atl::cli {

namespace {

// Whether a run has made tokens of the text already.
bool is_tokenized(const train::CorpusOptions& data) {
  return !data.text.empty() && path_exists(data.text.front()) && train::is_cached(data);
}

// What a run refuses of its settings once it sees its tokens.
void check_corpus(const train::TrainConfig& config, const train::PreparedCorpus& corpus) {
  train::require_held_out(config, corpus);
  const train::TrainSamples samples(
      corpus, config.data.weights, static_cast<std::uint64_t>(config.run.seed),
      config.train.context, data::parse_packing(config.data.packing, "data.packing"));
}

}  // namespace

Vocabulary find_vocabulary(const train::TrainConfig& config) {
  train::CorpusOptions data = train::corpus_options(config);
  if (!data.shards.empty() || is_tokenized(data)) {
    data.shard_cache.clear();  // nothing is copied
    train::PreparedCorpus corpus = train::prepare_corpus(data);
    check_corpus(config, corpus);
    const std::int64_t size = corpus.vocab_size();
    return {size, (data.shards.empty() ? data.cache : data.shards.front()).string(),
            std::move(corpus.tokenizer)};
  }
  std::optional<Tokenizer> tokenizer;
  std::string origin;
  if (!data.tokenizer.empty()) {
    origin = data.tokenizer.string();
    tokenizer = Tokenizer::load(data.tokenizer).with_special_tokens(data.special_tokens);
  } else if (config.data.new_tokenizer != "bpe") {
    origin = fmt::format("data.new_tokenizer = {}", config.data.new_tokenizer);
    tokenizer =
        train::make_tokenizer(data.text, data.new_tokenizer, data.vocab_size, data.chat_template,
                              data.special_tokens, data.fields, data.chat);
  } else {
    return {config.data.vocab_size,
            "data.vocab_size: the tokenizer is still to be trained, and a small text gives fewer",
            std::nullopt};
  }
  const std::int64_t size = tokenizer->vocab_size();
  return {size, origin, std::move(tokenizer)};
}

}  // namespace atl::cli
