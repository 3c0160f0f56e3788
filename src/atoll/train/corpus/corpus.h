#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/corpus.h"
#include "atoll/data/fields.h"
#include "atoll/data/loss_spans.h"
#include "atoll/data/mixture.h"
#include "atoll/data/samples.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/chat/conversation.h"
#include "atoll/text/tokenizer.h"

namespace atl::train {

/// Where a run's data comes from: shards that `atoll tokenize` made, or files.
struct CorpusOptions {
  std::vector<std::filesystem::path> shards;  ///< corpus directories; empty: make one of `text`
  std::vector<std::filesystem::path> text;    ///< files or directories
  std::filesystem::path tokenizer;            ///< a file or its directory; empty: make a new one
  std::string new_tokenizer = "bpe";          ///< "bpe", "byte" or "char"
  std::int64_t vocab_size = 0;                ///< of a BPE tokenizer that is trained
  std::vector<std::string> special_tokens;    ///< of a new tokenizer, beside <|endoftext|>
  std::filesystem::path chat_template;  ///< Jinja file; empty: that of `tokenizer`'s directory
  ChatTraining chat = {};               ///< what is learnt of conversations
  data::Fields fields = {};             ///< what the keys of JSONL are called
  data::PairKind pairs = data::PairKind::kNone;  ///< what rows compare
  double held_out = 0.05;
  std::string documents = "file";     ///< "file" or "blank-line"
  std::filesystem::path cache;        ///< where the corpus made of `text` goes
  bool cache_is_final = false;        ///< something was trained on it: never replaced by others
  std::string trained_hash;           ///< PreparedCorpus::hash of what it was trained on
  std::filesystem::path shard_cache;  ///< local copies of `shards`; empty: none
  std::uint64_t shard_cache_bytes = 0;
};

/// Identifies tokens and splits of corpora, at least one, in order.
std::string hash_of(const std::vector<data::Corpus>& corpora);

/// Corpora, and the tokenizer that made all of them.
struct PreparedCorpus {
  std::vector<data::Corpus> corpora;  ///< at least one
  Tokenizer tokenizer;

  std::int64_t vocab_size() const { return corpora.front().vocab_size(); }
  /// Of the training splits.
  std::int64_t num_tokens() const;
  std::int64_t num_held_out_tokens() const;
  /// Whether any of them holds text out.
  bool has_held_out() const;
  std::string hash() const { return hash_of(corpora); }
};

/// Opens the shards, or makes them of the text; the next run with the same text and options takes
/// them from the cache, where what is damaged or missing is made again. Throws Error(kUser) for
/// sources that are missing, empty or too small, for corpora of different tokenizers, and when they
/// are not those of a cache that is final.
PreparedCorpus prepare_corpus(const CorpusOptions& options);

/// Whether the cache holds what the text and options ask for.
bool is_cached(const CorpusOptions& options);

/// Makes a tokenizer of text files or directories: "bpe" of so many tokens, "byte" or "char"; with
/// `special_tokens`, which no other token is learnt across. Messages count as the text that
/// `chat_template` makes of them. Throws Error(kUser) when there are some and it is empty.
Tokenizer make_tokenizer(const std::vector<std::filesystem::path>& text, const std::string& kind,
                         std::int64_t vocab_size, const std::filesystem::path& chat_template,
                         const std::vector<std::string>& special_tokens = {},
                         const data::Fields& fields = {}, const ChatTraining& chat = {});

/// "documents begin with <s> and end with </s>": what a tokenizer puts round each document of text;
/// empty when that is nothing.
std::string describe_frame(const Tokenizer& tokenizer);

/// Renders messages for data::TokenizeOptions with the template that `chat_template` names, else
/// the one that lies beside the tokenizer (a file or its directory), as texts to learn `chat` from.
/// It is looked for at the first call, and Error(kUser) when there is none.
data::RenderChat chat_renderer(const std::filesystem::path& chat_template,
                               const std::filesystem::path& tokenizer_path,
                               const Tokenizer& tokenizer, const ChatTraining& chat = {});

/// The samples of a run: those of one corpus, or a mixture of several.
class TrainSamples {
 public:
  /// `weights`: one for each corpus, or empty: in proportion to their tokens. `corpus` must outlive
  /// this. Throws Error(kUser) for a corpus with too few tokens.
  TrainSamples(const PreparedCorpus& corpus, const std::vector<double>& weights, std::uint64_t seed,
               std::int64_t context, data::Packing packing);

  const data::SampleSource& get() const {
    return mixture_ ? static_cast<const data::SampleSource&>(*mixture_) : *parts_.front();
  }

 private:
  std::vector<std::unique_ptr<data::SampleSource>> parts_;
  std::unique_ptr<data::Mixture> mixture_;
};

}  // namespace atl::train
