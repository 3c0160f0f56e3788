#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/data/corpus.h"
#include "atoll/text/tokenizer.h"

namespace atl::train {

/// Where a run's data comes from: shards that `atoll tokenize` made, or text.
struct CorpusOptions {
  std::filesystem::path shards;             ///< a corpus directory; empty: make one of `text`
  std::vector<std::filesystem::path> text;  ///< text files or directories
  std::filesystem::path tokenizer;          ///< tokenizer.json or its directory; empty: train one
  std::int64_t vocab_size = 0;              ///< of a tokenizer that is trained
  double held_out = 0.05;
  std::string documents = "file";  ///< "file" or "blank-line"
  std::filesystem::path cache;     ///< where the corpus made of `text` goes
  bool cache_is_final = false;     ///< something was trained on it: never replace it
};

/// A corpus and the tokenizer that made it.
struct PreparedCorpus {
  data::Corpus corpus;
  Tokenizer tokenizer;
};

/// Opens the shards, or makes them of the text; the next run with the same text and options takes
/// them from the cache. Throws Error(kUser) for sources that are missing, empty or too small, and
/// when they are not those of a cache that is final.
PreparedCorpus prepare_corpus(const CorpusOptions& options);

/// Whether the cache holds what the text and options ask for.
bool is_cached(const CorpusOptions& options);

/// Trains a byte-level BPE tokenizer on text files or directories.
Tokenizer train_tokenizer(const std::vector<std::filesystem::path>& text, std::int64_t vocab_size);

}  // namespace atl::train
